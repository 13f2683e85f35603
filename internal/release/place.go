package release

import "fmt"

// String prints the place for people: "shop.yaml, document 2, line 6". The zero Place prints nothing.
func (p Place) String() string {
	if p == (Place{}) {
		return ""
	}
	return fmt.Sprintf("%s, document %d, line %d", p.File, p.Document, p.Line)
}

// at is where an object stands, for the middle of a sentence: its place, or its position for a stored render.
func at(o *Object, position int) string {
	if place := o.Place.String(); place != "" {
		return place
	}
	return fmt.Sprintf("object %d of the render", position)
}
