// Package fingerprint recognises the content of files in other texts, without storing that content: in files
// that a program wrote, or in requests that it sends.
//
// A [Builder] reads the files and makes a [Set]. [Set.Search] and [Set.Find] return the places of a text that
// have content of one of the files, as it is or encoded: in base64, in hexadecimal, with the escapes of a URL or
// of a JSON string, or compressed with gzip, zlib or deflate in a zip archive; each also within another one.
//
// # What is recognised
//
//   - Any 63 bytes or more that follow one another in a file. For that the set has a hash of each 32 bytes of the
//     file, and a search computes the hash at each byte of the text.
//   - The whole of a file of 8 to 4,096 bytes, without blanks around it.
//   - In a file of secrets, each line and each value of 8 bytes or more, as of KEY=VALUE or "key": "value", unless it
//     is a plain word or number of less than 16 bytes.
//   - In another file, each line of 24 bytes or more with a digit or an at sign, such as a row of a table.
//
// Not recognised are other encodings, encryption, and content that was changed or is in shorter pieces.
//
// The hashes have a key, and none of them contains a part of a file. But a set confirms a correct guess,
// so only those who may read the files may have it. The package knows nothing of sandboxes.
package fingerprint
