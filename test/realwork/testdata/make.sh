cd src
cat >greet.h <<'H'
const char *whom(void);
H
cat >whom.c <<'C'
#include "greet.h"
const char *whom(void) { return "world"; }
C
cat >greet.c <<'C'
#include <stdio.h>
#include "greet.h"
int main(void) { printf("hello, %s\n", whom()); return 0; }
C
printf 'greet: greet.o whom.o\n\t$(CC) -o $@ $^\n%%.o: %%.c greet.h\n\t$(CC) -O2 -c -o $@ $<\n' >Makefile
make -j2 CC=cc
[ "$(./greet)" = "hello, world" ]
make -j2 CC=cc | grep 'up to date'
sleep 0.01
touch whom.c
make -j2 CC=cc | grep whom.o
echo works
