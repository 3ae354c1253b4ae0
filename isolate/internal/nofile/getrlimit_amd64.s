#include "textflag.h"

// func getrlimit(l *Limit) (errno int)
TEXT ·getrlimit(SB), NOSPLIT, $0-16
	MOVQ	$7, DI	// RLIMIT_NOFILE
	MOVQ	l+0(FP), SI
	MOVQ	$97, AX	// getrlimit
	SYSCALL
	NEGQ	AX
	MOVQ	AX, errno+8(FP)
	RET
