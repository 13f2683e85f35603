package release

import "fmt"

// Count is a number of things in a sentence: "1 object", "3 objects".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Verb is the verb of a sentence about a number of things, as one or more of them have it.
func Verb(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}
