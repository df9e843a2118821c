/** Structs have C's layout, and values read back as written. */

import assert from "node:assert/strict";
import test from "node:test";
import { findFalseClaims, type HeaderClaim, whyNoHeader } from "../../../test/support/cuda-headers.js";
import { Struct, structs } from "./structs.js";

const headerOf = {
  "cuda.h": [structs.allocationProperty, structs.access, structs.launchConfig, structs.launchAttribute],
  "cublasLt.h": [structs.heuristicResult],
  "nvtx3/nvToolsExtMem.h": [
    structs.memoryRange,
    structs.memoryPool,
    structs.memoryRegions,
    structs.memoryReferences,
  ],
} as const;

/** The properties of a struct that the check needs. */
type Layout = Pick<Struct<readonly []>, "name" | "size"> & {
  readonly fields: readonly (readonly [string, unknown, string?])[];
  readonly offsets: Readonly<Record<string, number>>;
};

function claimsOf({ name, size, fields, offsets }: Layout): HeaderClaim[] {
  return [
    { holds: `sizeof(${name}) == ${size}`, otherwise: `${name} is not ${size} bytes` },
    ...fields.map(([field, , inC = field]) => ({
      holds: `offsetof(${name}, ${inC}) == ${offsets[field]}`,
      otherwise: `${name}.${inC} is not at ${offsets[field]}`,
    })),
  ];
}

for (const [header, layouts] of Object.entries<readonly Layout[]>(headerOf)) {
  test(`every struct is laid out as in ${header}`, { skip: whyNoHeader(header) ?? false }, () => {
    assert.deepEqual(findFalseClaims({ header, claims: layouts.flatMap(claimsOf) }), []);
  });
}

test("red proof: a missing field is detected", { skip: whyNoHeader("cuda.h") ?? false }, () => {
  const short = new Struct("CUmemAccessDesc", [
    ["locationType", "i32", "location.type"],
    ["flags", "i32"],
  ]);
  assert.deepEqual(findFalseClaims({ header: "cuda.h", claims: claimsOf(short) }), [
    "CUmemAccessDesc is not 8 bytes",
    "CUmemAccessDesc.flags is not at 4",
  ]);
});

test("fields are aligned to their sizes, and a struct to its largest field", () => {
  const struct = new Struct("Mixed", [
    ["a", "u8"],
    ["b", "u16"],
    ["c", "u8"],
    ["d", "address"],
    ["e", "f32"],
  ]);
  assert.deepEqual(struct.offsets, { a: 0, b: 2, c: 4, d: 8, e: 16 });
  assert.equal(struct.size, 24);
});

test("cuBLASLt's heuristic result has 96 bytes, with the workspace size after the 64 bytes of the algorithm", () => {
  const { size, offsets } = structs.heuristicResult;
  assert.equal(size, 96);
  assert.deepEqual(offsets, { algo: 0, workspaceSize: 64, state: 72, wavesCount: 76, reserved: 80 });
});

// Written down, because most machines have no NVTX header.
test("NVTX's structs have the documented sizes and offsets", () => {
  const layouts = [structs.memoryRange, structs.memoryPool, structs.memoryRegions, structs.memoryReferences];
  assert.deepEqual(
    layouts.map(({ size }) => size),
    [16, 48, 48, 32],
  );
  assert.deepEqual(structs.memoryRange.offsets, { size: 0, ptr: 8 });
  assert.deepEqual(structs.memoryPool.offsets, {
    ...{ extCompatID: 0, structSize: 2, reserved0: 4, usage: 8, type: 12 },
    ...{ typeSpecificDescSize: 16, typeSpecificDesc: 24, category: 32, messageType: 36, message: 40 },
  });
  assert.deepEqual(structs.memoryRegions.offsets, {
    ...{ extCompatID: 0, structSize: 2, regionType: 4, heap: 8, regionCount: 16 },
    ...{ regionDescElementSize: 24, regionDescElements: 32, regionHandleElementsOut: 40 },
  });
  const { extCompatID, refType, refCount, refElementSize, refElements } = structs.memoryReferences.offsets;
  assert.deepEqual([extCompatID, refType, refCount, refElementSize, refElements], [0, 4, 8, 16, 24]);
});

test("every kind of field reads back as written, at any offset", () => {
  const struct = new Struct("All", [
    ["u8", "u8"],
    ["u16", "u16"],
    ["i32", "i32"],
    ["u32", "u32"],
    ["f32", "f32"],
    ["u64", "u64"],
    ["address", "address"],
  ]);
  const values = {
    u8: 0xff,
    u16: 0xfffe,
    i32: -3,
    u32: 0xffff_fffc,
    f32: -1.5,
    u64: 2 ** 53 - 1,
    address: 0x7f12_3456_7890,
  };
  const view = new DataView(new ArrayBuffer(2 * struct.size));
  struct.write(view, values, struct.size);
  assert.deepEqual(struct.read(view, struct.size), values);
  assert.deepEqual(new Set(Object.values(struct.read(view))), new Set([0]), "the other place is untouched");
});

test("an omitted field is 0, independent of the earlier bytes", () => {
  const { access } = structs;
  const view = new DataView(new ArrayBuffer(access.size));
  access.write(view, { locationType: 1, locationId: 7, flags: 3 });
  access.write(view, { flags: 1 });
  assert.deepEqual(access.read(view), { locationType: 0, locationId: 0, flags: 1 });
});
