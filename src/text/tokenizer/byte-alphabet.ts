/** The alphabet of byte-level BPE: a printable character for each byte, as GPT-2 introduced it. */

/** Bytes whose character is that of Latin-1; the others take characters from U+0100 on. */
function isPrintable(byte: number): boolean {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

let next = 256;

/** The character of each byte. */
export const byteCharacters: readonly string[] = Array.from({ length: 256 }, (_, byte) =>
  String.fromCharCode(isPrintable(byte) ? byte : next++),
);

const bytes = new Map(byteCharacters.map((character, byte) => [character, byte]));

const encoder = new TextEncoder();

/** A text as the characters of its UTF-8 bytes. */
export function toByteCharacters(text: string): string {
  let characters = "";
  for (const byte of encoder.encode(text)) characters += byteCharacters[byte];
  return characters;
}

/** The bytes of a token: of its characters if all of them stand for bytes, else of its UTF-8 text. */
export function bytesOfToken(token: string): Iterable<number> {
  const found: number[] = [];
  for (const character of token) {
    const byte = bytes.get(character);
    if (byte === undefined) return encoder.encode(token);
    found.push(byte);
  }
  return found;
}
