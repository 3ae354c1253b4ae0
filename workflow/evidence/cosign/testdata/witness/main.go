// The program witness is a witness of transparency-dev on the loopback interface, for a test of snapfs: it cosigns the
// checkpoints of the logs whose verifier keys are its arguments. It prints its URL and its verifier key, and ends
// when its standard input does.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	f_note "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/witness/persistence/inmemory"
	"github.com/transparency-dev/witness/witness"
	"golang.org/x/mod/sumdb/note"
)

func main() {
	log.SetFlags(0)
	private, public, err := note.GenerateKey(rand.Reader, "witness.example/test")
	if err != nil {
		log.Fatal(err)
	}
	signer, err := f_note.NewSignerForCosignatureV1(private)
	if err != nil {
		log.Fatal(err)
	}
	if public, err = f_note.VKeyToCosignatureV1(public); err != nil {
		log.Fatal(err)
	}
	logs := map[string]note.Verifier{}
	for _, key := range os.Args[1:] {
		v, err := note.NewVerifier(key)
		if err != nil {
			log.Fatal(err)
		}
		logs[v.Name()] = v
	}
	w, err := witness.New(context.Background(), witness.Opts{
		Persistence: inmemory.New(), Signers: []note.Signer{signer},
		VerifierForLog: func(_ context.Context, origin string) (note.Verifier, bool, error) {
			v, ok := logs[origin]
			return v, ok, nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /add-checkpoint", witness.NewHTTPHandler(w).AddCheckpoint)
	go func() { log.Fatal(http.Serve(l, mux)) }()
	fmt.Printf("http://%s %s\n", l.Addr(), public)
	io.Copy(io.Discard, os.Stdin)
}
