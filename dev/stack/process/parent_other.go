//go:build !linux

package process

import "syscall"

// dieWithParent does nothing where the kernel has no such signal: there, kill -9 of devstack leaves the children.
func dieWithParent(*syscall.SysProcAttr) {}
