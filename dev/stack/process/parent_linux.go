package process

import "syscall"

// dieWithParent makes the kernel kill the child when this process ends, however it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
