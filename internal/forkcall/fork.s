// This empty file lets fork_linux.go declare functions without a body.
