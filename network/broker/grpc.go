package broker

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// isGRPC reports whether r is a call of gRPC, which reads only responses with a gRPC status.
func isGRPC(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// answerGRPC answers a call of gRPC with a status of gRPC, for a refusal with this HTTP status and reason. It has no
// body ("Trailers-Only" in gRPC over HTTP2).
func answerGRPC(w http.ResponseWriter, status int, why string) {
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	h.Set("Grpc-Status", strconv.Itoa(grpcStatus(status)))
	h.Set("Grpc-Message", grpcMessage(why))
	w.WriteHeader(http.StatusOK)
}

// grpcStatus returns the status code of gRPC (google.golang.org/grpc/codes) that says the same as an HTTP status of a
// refusal.
func grpcStatus(status int) int {
	switch status {
	case http.StatusBadRequest:
		return 3 // invalid argument
	case http.StatusTooManyRequests, http.StatusRequestEntityTooLarge:
		return 8 // resource exhausted
	case http.StatusBadGateway:
		return 14 // unavailable
	}
	return 7 // permission denied
}

// grpcMessage encodes text as the header Grpc-Message has it: bytes that are not printable ASCII, and the percent sign,
// as % and two digits.
func grpcMessage(text string) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
