#include "textflag.h"

// func fork(args *cloneArgs, size, first, head uintptr) (pid, thread int)
//
// clone3(2). The parent returns with the child's pid or -errno, and the number
// of its thread. The child works
// through the steps that begin at first and never returns: it leaves the stack
// alone, so that it is safe in a process that shares memory with its parent.
//
// BX is the step, R12 the head of the image. The kernel keeps all registers
// but AX, CX and R11.
TEXT ·fork(SB), NOSPLIT|NOFRAME, $0-48
	MOVQ	$186, AX	// gettid
	SYSCALL
	MOVQ	AX, thread+40(FP)
	MOVQ	args+0(FP), DI
	MOVQ	size+8(FP), SI
	MOVQ	first+16(FP), BX
	MOVQ	head+24(FP), R12
	MOVQ	$435, AX	// clone3
	SYSCALL
	TESTQ	AX, AX
	JZ	child
	MOVQ	AX, pid+32(FP)
	RET
child:
	JMP	·loop(SB)

// func loopBounds() (start, end unsafe.Pointer)
TEXT ·loopBounds(SB), NOSPLIT, $0-16
	LEAQ	·loop(SB), AX
	MOVQ	AX, start+0(FP)
	LEAQ	·loopEnd(SB), AX
	MOVQ	AX, end+8(FP)
	RET

// loop works through the steps from BX on. Its instructions do not depend on their address.
TEXT ·loop(SB), NOSPLIT|NOFRAME, $0-0
step:
	MOVL	88(BX), R13	// which arguments are cells
	MOVQ	8(BX), DI
	MOVQ	16(BX), SI
	MOVQ	24(BX), DX
	MOVQ	32(BX), R10
	MOVQ	40(BX), R8
	MOVQ	48(BX), R9
	BTL	$0, R13
	JCC	2(PC)
	MOVLQSX	(DI), DI
	BTL	$1, R13
	JCC	2(PC)
	MOVLQSX	(SI), SI
	BTL	$2, R13
	JCC	2(PC)
	MOVLQSX	(DX), DX
	BTL	$3, R13
	JCC	2(PC)
	MOVLQSX	(R10), R10
	BTL	$4, R13
	JCC	2(PC)
	MOVLQSX	(R8), R8
	BTL	$5, R13
	JCC	2(PC)
	MOVLQSX	(R9), R9
	MOVQ	0(BX), AX
	CMPQ	AX, $-1
	JEQ	look
	SYSCALL
	JMP	done
look:
	MOVQ	DI, AX
done:
	MOVQ	80(BX), CX	// where the result goes
	TESTQ	CX, CX
	JZ	2(PC)
	MOVL	AX, (CX)
	CMPQ	AX, $-4095
	JCC	error		// unsigned: -4095 and above
	TESTQ	AX, AX
	JZ	zero
next:
	MOVQ	56(BX), BX
	JMP	step
zero:
	MOVQ	64(BX), BX
	JMP	step
error:
	NEGQ	AX
	MOVWLZX	92(BX), CX
	CMPQ	AX, CX
	JEQ	next
	CMPL	CX, $0xffff
	JEQ	next
	MOVWLZX	94(BX), CX
	CMPQ	AX, CX
	JEQ	next
	CMPL	CX, $0xfffe
	JEQ	2(PC)
	MOVQ	BX, 0(R12)
	JEQ	2(PC)
	MOVL	AX, 8(R12)
	MOVQ	72(BX), BX
	JMP	step

TEXT ·loopEnd(SB), NOSPLIT|NOFRAME, $0-0
	RET
