// The programs behind `make test` and `make demo`: they start the embedded stack and work with it. Standard library
// only.
module convoy.dev/convoy/dev/run

go 1.26.0
