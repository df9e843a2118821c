/** Reading safetensors: files of other programs are read, and every kind of invalid file is rejected by name. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, test } from "node:test";
import { effort } from "../../../test/support/effort.js";
import { rejects } from "../../../test/support/rejects.js";
import { readRepositoryFile, repositoryRoot } from "../../../test/support/repository.js";
import { entry, fileWith } from "../../../test/support/safetensors-file.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { viewElements } from "../../ir/index.js";
import { type StoredTensor, textLimit } from "./format.js";
import { parseHeader } from "./header.js";
import { readSafetensors } from "./read.js";
import { writeSafetensors } from "./write.js";

function oracleFile(name: string): Uint8Array {
  return readFileSync(join(repositoryRoot, "test/oracle", name));
}

function find(tensors: ReadonlyMap<string, StoredTensor>, name: string): StoredTensor {
  return tensors.get(name) ?? assert.fail(`no tensor ${name}`);
}

const oneByte = entry("[1]", 0, 1);

describe("files of other programs", () => {
  it("a file of the reference library is read, and written again to the same bytes", () => {
    const file = oracleFile("reference.safetensors");
    const { tensors, metadata } = readSafetensors(file);
    assert.equal(tensors.size, 36);
    assert.deepEqual([...metadata], [["made by", "safetensors 0.8.0"]]);
    assert.deepEqual(find(tensors, "b.bfloat16").shape, [2, 3]);
    assert.deepEqual(find(tensors, "empty.float64").bytes.length, 0);
    sameBytes(writeSafetensors([...tensors.values()].reverse(), metadata), file, "the file written again");
  });

  it("the op cases are read: each case has its tensors, and all inputs but six are exact in float32", () => {
    interface Case {
      readonly inputs: readonly string[];
      readonly outputs: readonly string[];
      readonly grads: readonly (string | null)[];
    }
    const { cases } = JSON.parse(readRepositoryFile("test/oracle/ops.json")) as { cases: Case[] };
    const { tensors } = readSafetensors(oracleFile("ops.safetensors"));
    assert.equal(tensors.size, 733);
    const inexact: string[] = [];
    for (const { inputs, outputs, grads } of cases) {
      for (const name of outputs) find(tensors, name);
      for (const [index, name] of inputs.entries()) {
        const { dtype, shape, bytes } = find(tensors, name);
        const grad = grads[index];
        if (grad) assert.deepEqual(find(tensors, grad).shape, shape);
        if (dtype !== "f64") continue;
        if (viewElements("f64", bytes).some((value) => Math.fround(value) !== value)) inexact.push(name);
      }
    }
    // test/oracle/README.md names them: computations in float32 must allow for their rounding.
    assert.deepEqual(inexact, ["c087.in0", "c120.in0", "c121.in0", "c124.in0", "c128.in0", "c134.in0"]);
  });

  it("the CrossAsset trajectories are read", () => {
    const { tensors } = readSafetensors(oracleFile("crossasset.safetensors"));
    assert.equal(tensors.size, 208);
    const weight = find(tensors, "t0.init.input.0.weight");
    assert.deepEqual([weight.dtype, weight.shape], ["f32", [8, 16]]);
    assert.ok(viewElements("f32", weight.bytes).every((value) => Number.isFinite(value) && value !== 0));
  });
});

describe("a valid file", () => {
  it("has tensors that are views of its bytes, at any offset in memory", () => {
    const memory = new Uint8Array(200);
    const file = fileWith(`{"a":${entry("[2]", 0, 2)}}`, 2);
    const bytes = memory.subarray(13, 13 + file.length);
    bytes.set(file);
    const view = find(readSafetensors(bytes).tensors, "a").bytes;
    assert.equal(view.buffer, memory.buffer);
    assert.equal(view.byteOffset, 13 + file.length - 2);
    assert.equal(view.length, 2);
  });

  it("may be empty, may have spaces in its header, and may have its data in any order", () => {
    assert.equal(readSafetensors(fileWith("{}")).tensors.size, 0);
    const header = `{\n "late" : ${entry("[ 2 ]", 1, 3)} ,\t"early": ${oneByte}, "none": ${entry("[0,5]", 1, 1)}}  \n`;
    const { tensors } = readSafetensors(fileWith(header, 3));
    assert.deepEqual([...tensors.keys()], ["late", "early", "none"]);
  });

  it("may spell its fields with escapes, and have numbers up to 2⁵³ − 1 with spaces around them", () => {
    const fields =
      '"dty\\u0070e":"F\\u0034","sh\\u0061pe":[ 9007199254740991\t, 0 ,10\n],"data_offsets":[0 , 0 ]';
    const { entries } = parseHeader(new TextEncoder().encode(`{"a":{${fields}}}`));
    assert.deepEqual(
      [...entries.values()],
      [{ name: "a", fileDtype: "F4", shape: [9007199254740991, 0, 10], begin: 0, end: 0 }],
    );
  });

  it("may have names that are special in JavaScript", () => {
    const names = ["__proto__", "constructor", "toString", "hasOwnProperty", "", "0"];
    const members = names.map((name, index) => `${JSON.stringify(name)}:${entry("[1]", index, index + 1)}`);
    const header = `{"__metadata__":{"__proto__":"kept"},${members.join(",")}}`;
    const { tensors, metadata } = readSafetensors(fileWith(header, names.length));
    assert.deepEqual([...tensors.keys()], names);
    assert.equal(metadata.get("__proto__"), "kept");
    assert.equal(({} as Record<string, unknown>)["dtype"], undefined);
  });
});

/** [the fault, the file, the error's message] */
const wrongFiles: readonly (readonly [string, Uint8Array, RegExp])[] = [
  ["no bytes", new Uint8Array(0), /has 0 bytes; .* begins with 8/],
  ["fewer bytes than the length takes", new Uint8Array(7), /has 7 bytes/],
  [
    "a header that reaches past the file",
    fileWith("{}").subarray(0, 9),
    /a header of 2 bytes, but 1 bytes follow/,
  ],
  ["a length of 2⁶⁴ − 1", new Uint8Array(16).fill(255), /a header of 18446744073709551615 bytes/],
  ["an empty header", fileWith(""), /The header is empty/],
  ["another format", fileWith("PK\u0003\u0004"), /begins with the byte 80; it must begin with \{/],
  ["a header that is a list", fileWith("[]"), /must begin with \{/],
  ["a header that begins with a space", fileWith(" {}"), /begins with the byte 32/],
  ["a header that is not UTF-8", fileWith(Uint8Array.of(0x7b, 0xff, 0x7d)), /not text in UTF-8/],
  ["a header that breaks off", fileWith('{"a":{"dtype":"U8"'), /found the end of the header/],
  ["a text that breaks off", fileWith('{"a'), /expected a closing quote/],
  [
    "a text with a line break",
    fileWith(`{"a\nb":${oneByte}}`, 1),
    /expected a text without control characters/,
  ],
  ["an unknown escape", fileWith(`{"\\q":${oneByte}}`, 1), /unknown escapes/],
  ["half a surrogate pair", fileWith(`{"\\ud800":${oneByte}}`, 1), /expected whole characters/],
  ["a second value after the header", fileWith("{}{}"), /expected nothing more/],
  ["a comma too many", fileWith(`{"a":${oneByte},}`, 1), /expected a text in quotes/],
  ["two tensors of one name", fileWith(`{"a":${oneByte},"a":${oneByte}}`, 1), /found a second "a"/],
  ["one name in two spellings", fileWith(`{"a":${oneByte},"\\u0061":${oneByte}}`, 1), /found a second "a"/],
  ["a field twice", fileWith('{"a":{"dtype":"U8","dtype":"U8"}}'), /a second "dtype"/],
  [
    "a metadata key twice",
    fileWith('{"__metadata__":{"k":"1","k":"2"}}'),
    /in __metadata__: found a second "k"/,
  ],
  ["a tensor that is a number", fileWith('{"a":7}'), /in tensor "a": found "7}", expected "{"/],
  ["an unknown field", fileWith('{"a":{"strides":[1]}}'), /the field "strides"/],
  ["a field twice, in two spellings", fileWith('{"a":{"shape":[],"sh\\u0061pe":[]}}'), /a second "shape"/],
  ["an unknown field with an escape", fileWith('{"a":{"\\u0073trides":[1]}}'), /the field "strides"/],
  ["a field without quotes", fileWith('{"a":{dtype":"U8"}}'), /found "dtype.*expected a text in quotes/],
  ["a tensor without a shape", fileWith('{"a":{"dtype":"U8"}}'), /an entry with dtype, expected/],
  ["a tensor without fields", fileWith('{"a":{}}'), /an entry with no field/],
  ["a dtype that is no text", fileWith('{"a":{"dtype":1}}'), /expected a text in quotes/],
  ["a negative dimension", fileWith(`{"a":${entry("[-1]", 0, 1)}}`, 1), /found -1, expected a whole number/],
  ["a fractional dimension", fileWith(`{"a":${entry("[0.5]", 0, 1)}}`, 1), /found 0\.5/],
  ["a dimension with an exponent", fileWith(`{"a":${entry("[1e0]", 0, 1)}}`, 1), /found 1e0/],
  ["a dimension with a leading zero", fileWith(`{"a":${entry("[01]", 0, 1)}}`, 1), /found 01/],
  ["a dimension that is a text", fileWith(`{"a":${entry('["1"]', 0, 1)}}`, 1), /expected a whole number/],
  [
    "a dimension of 17 digits",
    fileWith(`{"a":${entry("[10000000000000000]", 0, 1)}}`, 1),
    /found 100000000000000/,
  ],
  ["two numbers without a comma", fileWith(`{"a":${entry("[1 2]", 0, 2)}}`, 2), /found "2\]/],
  ["a dimension that is null", fileWith(`{"a":${entry("[null]", 0, 1)}}`, 1), /found null/],
  [
    "a dimension beyond 2⁵³",
    fileWith(`{"a":${entry("[9007199254740992]", 0, 1)}}`, 1),
    /found 9007199254740992/,
  ],
  [
    "an unknown dtype whose bytes end before they begin",
    fileWith(`{"a":${entry("[1]", 1, 0).replace("U8", "F4")}}`, 1),
    /"F4" \[1\], has the data_offsets \[1, 0\]: the end is before the start/,
  ],
  ["a shape that is a number", fileWith(`{"a":${entry("1", 0, 1)}}`, 1), /expected "\["/],
  [
    "a product that overflows, though a zero follows",
    fileWith(`{"a":${entry("[4503599627370496,4503599627370496,0]", 0, 0)}}`),
    /more bytes than can be counted/,
  ],
  ["65 dimensions", fileWith(`{"a":${entry(`[${Array(65).fill(1)}]`, 0, 1)}}`, 1), /at most 64/],
  ["three offsets", fileWith(`{"a":${entry("[1]", 0, "1,2")}}`, 1), /found 3 data_offsets/],
  ["no offsets", fileWith('{"a":{"dtype":"U8","shape":[],"data_offsets":[]}}'), /found 0 data_offsets/],
  ["a negative offset", fileWith(`{"a":${entry("[1]", -1, 0)}}`, 1), /found -1/],
  [
    "reversed offsets",
    fileWith(`{"a":${entry("[1]", 1, 0)}}`, 1),
    /has the data_offsets \[1, 0\]: the end is before the start/,
  ],
  [
    "fewer bytes than the shape needs",
    fileWith(`{"a":${entry("[2,2]", 0, 3)}}`, 3),
    /"U8" \[2, 2\], needs 4 bytes/,
  ],
  [
    "wider elements than there are bytes",
    fileWith(`{"a":${oneByte.replace("U8", "F32")}}`, 1),
    /"F32" \[1\], needs 4/,
  ],
  [
    "offsets past the file",
    fileWith(`{"a":${entry("[4]", 0, 4)}}`, 3),
    /is at \[0, 4\), but .* 3 bytes of data/,
  ],
  [
    "two tensors on one byte",
    fileWith(`{"a":${entry("[2]", 0, 2)},"b":${entry("[2]", 1, 3)}}`, 3),
    /reaches to 2/,
  ],
  [
    "a hole between tensors",
    fileWith(`{"a":${oneByte},"b":${entry("[1]", 2, 3)}}`, 3),
    /nothing covers .* from 1 on/,
  ],
  [
    "a hole before the first tensor",
    fileWith(`{"a":${entry("[1]", 1, 2)}}`, 2),
    /nothing covers .* from 0 on/,
  ],
  ["bytes after the last tensor", fileWith(`{"a":${oneByte}}`, 2), /end at 1, but the file has 2/],
  ["metadata that is a list", fileWith('{"__metadata__":[]}'), /in __metadata__: found "\[\]}"/],
  ["metadata that is null", fileWith('{"__metadata__":null}'), /in __metadata__: found "null}"/],
  [
    "metadata with a number",
    fileWith('{"__metadata__":{"epoch":3}}'),
    /in __metadata__: found "3}}", expected a text/,
  ],
  ["metadata in metadata", fileWith('{"__metadata__":{"a":{"b":"c"}}}'), /expected a text in quotes/],
  [
    "lists as deep as the header is long",
    fileWith(`{"a":${"[".repeat(1_000_000)}`),
    /in tensor "a": found "\[\[/,
  ],
  ["a shape in a shape", fileWith(`{"a":{"shape":${"[".repeat(1_000_000)}`), /expected a whole number/],
];

describe("a file is rejected that has", () => {
  for (const [fault, file, message] of wrongFiles) {
    it(fault, () => rejects("BAD_FILE", () => readSafetensors(file), message));
  }
});

test("a header longer than the format allows is rejected before it is read", () => {
  const file = new Uint8Array(8 + 100_000_001);
  new DataView(file.buffer).setBigUint64(0, 100_000_001n, true);
  rejects("BAD_FILE", () => readSafetensors(file), /100000001 bytes, but the format allows 100000000/);
});

test("a name of megabytes is read, and shortened in messages", () => {
  const length = effort({ quick: 600_000, thorough: 2_000_000 });
  const name = '\\"'.repeat(length);
  const { tensors } = readSafetensors(fileWith(`{"${name}":${oneByte}}`, 1));
  assert.equal([...tensors.keys()][0]?.length, length);
  const message = /^.{0,400}$/;
  rejects("BAD_FILE", () => readSafetensors(fileWith(`{"${name}":7}`)), message);
  rejects("BAD_FILE", () => readSafetensors(fileWith(`{"${name}":${oneByte}}`, 2)), message);
});

/** Headers of many megabytes, and the byte at which each is rejected: what follows is not read. */
const hugeHeaders: readonly (readonly [string, () => Uint8Array, at: number, RegExp])[] = [
  ["a name without end", () => fileWith(`{"${"a".repeat(1_000_000)}`), 1, /expected a closing quote/],
  ["a long name", () => longName("a", ""), 1, /found more text, expected .* at most 16777216 bytes in all/],
  ["a long name of other bytes than characters", () => longName("é", ""), 1, /at most 16777216 bytes/],
  ["a long name of escapes", () => longName("\\u00e9", ""), 1, /at most 16777216 bytes/],
  ["a long text in its metadata", () => longName("a", '__metadata__":{"k":"'), 21, /at most 16777216 bytes/],
  [
    "long names one after the other",
    () => {
      const names = ["a", "b", "c"].map(
        (letter) => `"${letter.repeat(textLimit / 2)}":${entry("[0]", 0, 0)}`,
      );
      return fileWith(`{${names}}`);
    },
    textLimit / 2 + entry("[0]", 0, 0).length + 5,
    /in the list of tensors: found more text/,
  ],
  [
    "shapes of many dimensions",
    () => {
      const shape = entry(`[${Array(64).fill(0)}]`, 0, 0);
      return fileWith(`{${Array.from({ length: 70_000 }, (_, index) => `"${index}":${shape}`)}}`);
    },
    4_401_094,
    /found 1600036 numbers in shapes and data_offsets, expected at most 1600000/,
  ],
];

/** The header `{"` with a text that is longer than all texts may be. */
function longName(unit: string, before: string): Uint8Array {
  const text = Buffer.alloc(textLimit + Buffer.byteLength(unit), unit);
  return fileWith(Buffer.concat([Buffer.from(`{"${before}`), text, Buffer.from('":7}')]));
}

describe("a header is rejected before the rest of it is read, if it has", () => {
  for (const [fault, make, at, message] of hugeHeaders)
    it(fault, () => {
      rejects("BAD_FILE", () => readSafetensors(make()), new RegExp(`byte ${at}, .*${message.source}`));
    });
});

test("dtypes are read as they are, in any spelling and order", () => {
  const dtypes = [
    '"F4"',
    '"F4"',
    '"\\u0046\\u0034"',
    '"é"',
    '"Ã©"',
    '"é"',
    '"a\\"b"',
    '"F4"',
    '""',
    '"F44"',
    '"F4"',
  ];
  const members = dtypes.map((dtype, index) => `"${index}":${entry("[]", 0, 0).replace('"U8"', dtype)}`);
  const { entries } = parseHeader(Buffer.from(`{${members}}`));
  assert.deepEqual(
    [...entries.values()].map(({ fileDtype }) => fileDtype),
    dtypes.map((dtype) => JSON.parse(dtype)),
  );
  const quoted = `{"0":${entry("[]", 0, 0).replace("U8", 'a\\"b')},"1":${entry("[]", 0, 0).replace("U8", 'a"b')}}`;
  rejects("BAD_FILE", () => parseHeader(Buffer.from(quoted)), /found "b/);
});

test("too many names are rejected before they fill the memory", () => {
  const keys = Array.from({ length: 100_001 }, (_, index) => `"${index}":""`);
  rejects("BAD_FILE", () => readSafetensors(fileWith(`{"__metadata__":{${keys}}}`)), /at most 100000/);
});
