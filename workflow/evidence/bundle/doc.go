// Package bundle is the evidence of one sandbox in one file: the log of everything done with it, the
// manifests of changed files, the signed statements and the signed checkpoint.
//
// For verification, [Verify] needs the file and nothing else: no state directory and no network. It gives a
// verdict for each of integrity, signer, completeness and policy, with the name of the fault. The verdict on
// the gate, the recorded checks, needs a host that can repeat them. [Reveal] takes one changed file out of a
// bundle, with the proof that it belongs there.
//
// Every byte of a bundle is fixed: each line is canonical JSON, and each value is signed or follows from a
// signed one. examples/verify_evidence.py is a second verifier, which shares no code with this one.
package bundle
