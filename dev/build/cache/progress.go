package cache

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// linesEvery is how often a line is written when the output is not a terminal and cannot be rewritten.
const linesEvery = 30 // ticks

// announce writes one line about work that has begun and keeps its elapsed time current until done is called. On a
// terminal the line is rewritten every tick, elsewhere a new one is added now and then.
func announce(out io.Writer, what string, tick time.Duration) (done func(error)) {
	begin := time.Now()
	terminal := isTerminal(out)
	elapsed := func() time.Duration { return time.Since(begin).Round(time.Second) }
	fmt.Fprintf(out, "%s …%s", what, ending(terminal))

	stop := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for ticks := 1; ; ticks++ {
			select {
			case <-stop:
				return
			case <-ticker.C:
				if terminal {
					fmt.Fprintf(out, "\r%s … %s elapsed", what, elapsed())
				} else if ticks%linesEvery == 0 {
					fmt.Fprintf(out, "%s … %s elapsed\n", what, elapsed())
				}
			}
		}
	})
	return func(err error) {
		close(stop)
		writing.Wait()
		result := "done"
		if err != nil {
			result = "FAILED"
		}
		if terminal {
			fmt.Fprint(out, "\r")
		}
		fmt.Fprintf(out, "%s … %s after %s\n", what, result, elapsed())
	}
}

func ending(terminal bool) string {
	if terminal {
		return ""
	}
	return "\n"
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
