#!/bin/sh
# Makes the two databases of Temporal, and brings their schema up to date. It can run again at any time.
set -eu
for part in temporal visibility; do
	database=temporal
	if [ "$part" = visibility ]; then database=temporal_visibility; fi
	tool="temporal-sql-tool --plugin postgres12_pgx --ep $POSTGRES_SEEDS --port 5432 --user $POSTGRES_USER --db $database"
	$tool create-database
	$tool setup-schema --version 0.0
	$tool update-schema --schema-name "postgresql/v12/$part"
done
