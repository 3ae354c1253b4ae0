#include "textflag.h"

// func call32(number, first uintptr, second *byte) (result int32)
//
// The kernel clears R8 to R11.
TEXT ·call32(SB), NOSPLIT, $0-28
	MOVQ	number+0(FP), AX
	MOVQ	first+8(FP), BX
	MOVQ	second+16(FP), CX
	INT	$0x80
	MOVL	AX, result+24(FP)
	RET
