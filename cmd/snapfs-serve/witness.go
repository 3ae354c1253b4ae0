package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/evidence/cosign"
)

// witnessTime bounds the wait for a witness, and maxWitness the size in bytes of its answer.
const (
	witnessTime = 30 * time.Second
	maxWitness  = 64 << 10
)

// askWitness sends q to a witness for `snapfs evidence cosign`, and prints its answer as JSON. It follows no redirect.
func askWitness(ctx context.Context, q cosign.Request) error {
	ctx, cancel := context.WithTimeout(ctx, witnessTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, q.URL, strings.NewReader(q.Body))
	if err != nil {
		return errs.New("asking a witness", q.URL, errs.ErrInvalid, err.Error())
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return errs.With("asking a witness", q.URL, err)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxWitness))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return errs.With("asking a witness", q.URL, err)
	}
	return json.NewEncoder(os.Stdout).Encode(cosign.Answer{Status: response.StatusCode, Body: string(body)})
}
