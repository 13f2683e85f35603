package release

import "errors"

// What an adapter of the control cluster says, apart from what it could not reach.
var (
	// ErrNotFound says that the object is not there.
	ErrNotFound = errors.New("not found")
	// ErrConflict says that somebody else wrote the object in between: read it again.
	ErrConflict = errors.New("written by somebody else in between")
)
