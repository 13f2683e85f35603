package main

import (
	"bytes"
	"testing"
)

func TestTheClosingLinesOfGoTestAreCounted(t *testing.T) {
	var out bytes.Buffer
	c := &counter{next: &out}
	text := "=== RUN TestX\nok  \tconvoy.dev/convoy/a\t0.1s\n--- FAIL: TestY\nFAIL\nFAIL\tconvoy.dev/convoy/b\t0.2s\n" +
		"?   \tconvoy.dev/convoy/c\t[no test files]\nok  \tconvoy.dev/convoy/d\t1s"
	for i := range len(text) {
		if _, err := c.Write([]byte{text[i]}); err != nil {
			t.Fatal(err)
		}
	}
	c.flush()
	if c.passed != 2 || c.failed != 1 || c.none != 1 {
		t.Errorf("passed %d, failed %d, without tests %d; want 2, 1, 1", c.passed, c.failed, c.none)
	}
	if out.String() != text {
		t.Errorf("the output was changed: %q", out.String())
	}
}
