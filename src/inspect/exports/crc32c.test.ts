/** CRC-32C against the vectors of RFC 3720 (iSCSI), appendix B.4. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { crc32c, maskedCrc32c } from "./crc32c.js";

const vectors: readonly (readonly [string, Uint8Array, number])[] = [
  ["the digits", Buffer.from("123456789"), 0xe3069283],
  ["nothing", new Uint8Array(0), 0],
  ["32 zeros", new Uint8Array(32), 0x8a9136aa],
  ["32 ones", new Uint8Array(32).fill(0xff), 0x62a8ab43],
  ["0 to 31", Uint8Array.from({ length: 32 }, (_, index) => index), 0x46dd794e],
  ["31 to 0", Uint8Array.from({ length: 32 }, (_, index) => 31 - index), 0x113fdb5c],
];

test("the checksums equal the test vectors", () => {
  for (const [name, bytes, expected] of vectors) assert.equal(crc32c(bytes), expected, name);
});

test("the mask rotates by 15 bits and adds, within 32 bits", () => {
  for (const [name, bytes, crc] of vectors) {
    const turned = ((BigInt(crc) >> 15n) | (BigInt(crc) << 17n)) & 0xffffffffn;
    assert.equal(BigInt(maskedCrc32c(bytes)), (turned + 0xa282ead8n) & 0xffffffffn, name);
  }
});
