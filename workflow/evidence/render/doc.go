// Package render shows verified evidence of a sandbox to those who do not read bundles: [Page] to a person,
// as one HTML page, and [Lines] to other systems, as events of OCSF, CloudEvents or OpenTelemetry, or as
// entries of system logs.
//
// Both take an evidence bundle and the verdicts on it. They show only the content of the records, so
// arguments and values that are redacted in the records are redacted here.
package render
