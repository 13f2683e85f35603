// The program that builds the parts of the embedded stack once and keeps them. Standard library only.
module convoy.dev/convoy/dev/build

go 1.26.0
