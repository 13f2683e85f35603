package release

import (
	"bytes"
	"unicode/utf8"
)

// chunk is the text of one YAML document, or of several JSON ones, with the place where it stands in its file.
type chunk struct {
	text   []byte
	number int // of the first document in it
	line   int // of the first byte of text, from 1
}

// splitDocuments cuts a file at its separators and counts the documents as YAML does: each line of three dashes
// begins a document, also an empty one, and what stands before the first such line is a document only if it has
// content. So a file that begins with a separator counts from there, and one that does not counts from its top.
// A line of three dots ends a document.
func splitDocuments(data []byte) []chunk {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	s := splitter{data: data, line: 1, startLine: 1}
	for s.next < len(data) {
		line := s.readLine()
		switch {
		case isMarker(line, "---"):
			if !onlyDirectives(s.text()) {
				s.cut()
			}
			s.marked = true
		case isMarker(line, "..."):
			s.cutAfter()
		}
	}
	s.at = len(data)
	s.cut()
	return s.chunks
}

type splitter struct {
	data      []byte
	at, next  int // the current line
	line      int // its number
	start     int // of the current document
	startLine int
	marked    bool // the current document began with a separator
	number    int
	chunks    []chunk
}

func (s *splitter) readLine() []byte {
	if s.next > 0 {
		s.line++
	}
	s.at = s.next
	if end := bytes.IndexByte(s.data[s.at:], '\n'); end >= 0 {
		s.next = s.at + end + 1
	} else {
		s.next = len(s.data)
	}
	return s.data[s.at:s.next]
}

func (s *splitter) text() []byte { return s.data[s.start:s.at] }

// cut ends the current document before the current line.
func (s *splitter) cut() {
	text := s.text()
	if s.marked || !isBlank(text) {
		s.number++
	}
	if !isBlank(text) {
		s.chunks = append(s.chunks, chunk{text: text, number: s.number, line: s.startLine})
	}
	s.start, s.startLine, s.marked = s.at, s.line, false
}

// cutAfter ends the current document before the current line and begins the next one after it.
func (s *splitter) cutAfter() {
	s.cut()
	s.start, s.startLine = s.next, s.line+1
}

// isMarker reports whether a line is the marker, followed by nothing or white space.
func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// isBlank reports whether a text has nothing but a separator, comments and white space.
func isBlank(text []byte) bool {
	_, found := firstContent(text)
	return !found
}

// onlyDirectives reports whether a text is the head of a document: directives such as %YAML, and comments.
func onlyDirectives(text []byte) bool {
	if isBlank(text) {
		return false
	}
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// firstContent is the number of line breaks before the first line with content.
func firstContent(text []byte) (int, bool) {
	n := 0
	for line := range bytes.Lines(text) {
		if isMarker(line, "---") {
			line = line[3:]
		}
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' {
			return n, true
		}
		n++
	}
	return 0, false
}

// contentLine is the line in the file where the content of the chunk begins.
func (c chunk) contentLine() int {
	n, _ := firstContent(c.text)
	return c.line + n
}

// body is the text without a leading separator and comments, and the line in the file where it begins.
func (c chunk) body() ([]byte, int) {
	n, _ := firstContent(c.text)
	text := c.text
	for range n {
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	if isMarker(text, "---") {
		text = text[3:]
	}
	return text, c.line + n
}

// badText names what makes a text unreadable before any syntax.
func badText(text []byte) (line int, message string) {
	if utf8.Valid(text) {
		return 0, ""
	}
	for l := range bytes.Lines(text) {
		if !utf8.Valid(l) {
			return line, "is not UTF-8 text"
		}
		line++
	}
	return 0, "is not UTF-8 text"
}
