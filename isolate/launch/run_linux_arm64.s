#include "textflag.h"

// func fork(args *cloneArgs, size, first, head uintptr) (pid, thread int)
//
// As in run_linux_amd64.s. R19 is the step, R20 the head of the image. The kernel
// keeps all registers but R0.
TEXT ·fork(SB), NOSPLIT|NOFRAME, $0-48
	MOVD	$178, R8	// gettid
	SVC
	MOVD	R0, thread+40(FP)
	MOVD	args+0(FP), R0
	MOVD	size+8(FP), R1
	MOVD	first+16(FP), R19
	MOVD	head+24(FP), R20
	MOVD	$435, R8	// clone3
	SVC
	CBZ	R0, child
	MOVD	R0, pid+32(FP)
	RET
child:
	B	·loop(SB)

// func loopBounds() (start, end unsafe.Pointer)
TEXT ·loopBounds(SB), NOSPLIT, $0-16
	MOVD	$·loop(SB), R0
	MOVD	R0, start+0(FP)
	MOVD	$·loopEnd(SB), R0
	MOVD	R0, end+8(FP)
	RET

// loop works through the steps from R19 on. Its instructions do not depend on their address.
TEXT ·loop(SB), NOSPLIT|NOFRAME, $0-0
step:
	MOVWU	88(R19), R21	// which arguments are cells
	MOVD	8(R19), R0
	MOVD	16(R19), R1
	MOVD	24(R19), R2
	MOVD	32(R19), R3
	MOVD	40(R19), R4
	MOVD	48(R19), R5
	TBZ	$0, R21, 2(PC)
	MOVW	(R0), R0
	TBZ	$1, R21, 2(PC)
	MOVW	(R1), R1
	TBZ	$2, R21, 2(PC)
	MOVW	(R2), R2
	TBZ	$3, R21, 2(PC)
	MOVW	(R3), R3
	TBZ	$4, R21, 2(PC)
	MOVW	(R4), R4
	TBZ	$5, R21, 2(PC)
	MOVW	(R5), R5
	MOVD	0(R19), R8
	CMN	$1, R8
	BEQ	done		// look: the result is the first argument
	SVC
done:
	MOVD	80(R19), R22	// where the result goes
	CBZ	R22, 2(PC)
	MOVW	R0, (R22)
	CMN	$4095, R0
	BHS	error		// unsigned: -4095 and above
	CBZ	R0, zero
next:
	MOVD	56(R19), R19
	B	step
zero:
	MOVD	64(R19), R19
	B	step
error:
	NEG	R0, R0
	MOVHU	92(R19), R22
	CMP	R22, R0
	BEQ	next
	MOVD	$0xffff, R23
	CMP	R22, R23
	BEQ	next
	MOVHU	94(R19), R22
	CMP	R22, R0
	BEQ	next
	MOVD	$0xfffe, R23
	CMP	R22, R23
	BEQ	3(PC)
	MOVD	R19, 0(R20)
	MOVW	R0, 8(R20)
	MOVD	72(R19), R19
	B	step

TEXT ·loopEnd(SB), NOSPLIT|NOFRAME, $0-0
	RET
