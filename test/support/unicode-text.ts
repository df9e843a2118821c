/** Random texts of all Unicode characters, for property tests. */

import fc from "fast-check";

const isSurrogate = (code: number): boolean => code >= 0xd800 && code <= 0xdfff;

/** Not fast-check's own unit "binary", which takes a second to list all characters. */
const character = fc
  .integer({ min: 0, max: 0x10ffff })
  .filter((code) => !isSurrogate(code))
  .map((code) => String.fromCodePoint(code));

/** A text of up to so many characters, control characters and unassigned ones among them. */
export function unicodeText(maxLength: number): fc.Arbitrary<string> {
  return fc.string({ unit: character, maxLength });
}
