package process

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// script writes an executable that stands in for a part of the stack.
func script(t *testing.T, body string) Command {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "part")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return Command{Path: path, LogDir: dir}
}

func TestAChildThatEndsTellsItsLastLines(t *testing.T) {
	p, err := Start(script(t, "echo cannot bind; exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := p.While(context.Background())
	defer cancel()
	<-ctx.Done()
	text := context.Cause(ctx).Error()
	for _, want := range []string{"part ended by itself", "exit status 3", "cannot bind", p.LogFile} {
		if !strings.Contains(text, want) {
			t.Errorf("the error lacks %q: %s", want, text)
		}
	}
}

func TestStopWaitsForTheEnd(t *testing.T) {
	for name, body := range map[string]string{
		"polite":   "exec sleep 60",
		"stubborn": "trap '' TERM; while :; do read line; done",
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Start(script(t, body))
			if err != nil {
				t.Fatal(err)
			}
			p.Stop(50 * time.Millisecond)
			select {
			case <-p.Done():
			default:
				t.Error("Stop returned before the child had ended")
			}
		})
	}
}

func TestAChildThatIsKilledStartsAgain(t *testing.T) {
	command := script(t, "echo started; exec sleep 60")
	command.Restart = true
	p, err := Start(command)
	if err != nil {
		t.Fatal(err)
	}
	const kills = 3
	for n := 1; n <= kills; n++ {
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			log, _ := os.ReadFile(p.LogFile)
			if strings.Count(string(log), "started") == n {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("start %d: %q", n, log)
			}
		}
		p.mu.Lock()
		err := p.cmd.Process.Kill()
		p.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
	}
	p.Stop(0)
	<-p.Done()
}

func TestAMissingProgramIsNamed(t *testing.T) {
	_, err := Start(Command{Path: "/nowhere/etcd", LogDir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "start etcd") {
		t.Errorf("got %v", err)
	}
}
