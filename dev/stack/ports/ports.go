// Package ports finds free ports on the loopback interface.
package ports

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Host is the only address the stack listens on.
const Host = "127.0.0.1"

// Ports are taken from below the range that Linux uses for outgoing connections. A port that the kernel proposes comes
// from that range, so a connection of any other program can take it before the part that it was meant for listens.
const lowest, highest = 10000, 32000

// Address joins the host and a port.
func Address(port int) string { return net.JoinHostPort(Host, strconv.Itoa(port)) }

// Check returns an error when nothing can listen on the port.
func Check(port int) error {
	listener, err := net.Listen("tcp", Address(port))
	if err != nil {
		return err
	}
	return listener.Close()
}

// Free returns n different ports on which nobody listens.
func Free(n int) ([]int, error) {
	const tries = 1000
	var free []int
	seen := map[int]bool{}
	for range tries {
		if len(free) == n {
			return free, nil
		}
		port := lowest + rand.IntN(highest-lowest)
		if !seen[port] && Check(port) == nil {
			free = append(free, port)
		}
		seen[port] = true
	}
	return nil, fmt.Errorf("found %d free ports of %d between %d and %d on %s after %d tries",
		len(free), n, lowest, highest, Host, tries)
}
