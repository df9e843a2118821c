/**
 * The emulator loads TMA boxes of tensors: swizzled, with zeros outside the tensor. It rejects what the
 * hardware would.
 */

import assert from "node:assert/strict";
import test, { afterEach } from "node:test";
import fc from "fast-check";
import { mapDataType } from "../../src/driver/cuda/constants.js";
import { NativeBuffer } from "../../src/driver/cuda/native-buffer.js";
import { BareCuda } from "../support/bare-cuda.js";
import { emulatorMissing, openEmulator } from "../support/emulator.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();
const bare = skip ? undefined! : new BareCuda(emulator.folder);

afterEach(() => {
  if (!skip) emulator.reset();
});

const misaligned = 716;
const illegalAddress = 700;
const launchFailed = 719;
const invalidValue = 1;
const notSupported = 801;

/** The arguments of cuTensorMapEncodeTiled: sizes and box in elements, strides in bytes. */
interface Description {
  readonly mapAddress?: number;
  readonly type?: number;
  readonly rank?: number;
  readonly memory: number;
  readonly sizes: readonly number[];
  readonly strides: readonly number[];
  readonly box: readonly number[];
  readonly elementStrides?: readonly number[];
  readonly flags?: readonly [interleave: number, swizzle: number, promotion: number, fill: number];
}

const block = new NativeBuffer(512);
/** The address of a tensor map is a multiple of 64. */
const mapAddress = Math.ceil(block.address / 64) * 64;

function encode(description: Description): number {
  const {
    mapAddress: target = mapAddress,
    type = mapDataType.FLOAT32,
    rank = 3,
    memory,
    sizes,
    strides,
    box,
  } = description;
  const { elementStrides = [1, 1, 1], flags = [0, 3, 3, 0] } = description;
  for (const [index, size] of sizes.entries()) block.setU64(size, 192 + 8 * index);
  for (const [index, stride] of strides.entries()) block.setU64(stride, 256 + 8 * index);
  for (const [index, size] of box.entries()) block.view.setUint32(320 + 4 * index, size, true);
  for (const [index, step] of elementStrides.entries()) block.view.setUint32(384 + 4 * index, step, true);
  const { address } = block;
  const { cuTensorMapEncodeTiled } = bare.cuda.driver.status;
  const pointers = [address + 192, address + 256, address + 320, address + 384] as const;
  return cuTensorMapEncodeTiled(target, type, rank, memory, ...pointers, ...flags);
}

/**
 * Loads one box to `tile` in dynamic shared memory, `shift` bytes after a multiple of 1024, and copies it
 * out.
 */
function code(boxBytes: number, shift = 0): string {
  return `extern "C" __global__ void __launch_bounds__(64) hf(const __grid_constant__ TensorMap map, unsigned char* out,
                                                     int column, int row, int matrix) {
    dynamicSharedMemory(memory, ${boxBytes + 2048});
    unsigned char* tile = memory + (1024 - reinterpret_cast<unsigned long long>(memory) % 1024) % 1024 + ${shift};
    Mbarrier* mbarrier = reinterpret_cast<Mbarrier*>(tile + ${boxBytes});
    if (threadIdx.x == 0) {
      mbarrierInit(mbarrier, 1);
      mbarrierArriveExpectTx(mbarrier, ${boxBytes});
      tmaLoad(tile, &map, column, row, matrix, mbarrier);
    }
    __syncthreads();
    mbarrierWait(mbarrier, 0);
    for (unsigned index = threadIdx.x; index < ${boxBytes}; index += blockDim.x) out[index] = tile[index];
  }`;
}

type Corner = readonly [column: number, row: number, matrix: number];

function bring(entry: number, out: number, [column, row, matrix]: Corner): [number, string] {
  const values = [{ at: mapAddress }, out, { i32: column }, { i32: row }, { i32: matrix }];
  assert.equal(bare.tryLaunch(entry, 1, 64, values), 0);
  return [bare.cuda.driver.status.cuStreamSynchronize(0), emulator.lastFault()];
}

const formats = {
  bf16: {
    type: mapDataType.BFLOAT16,
    bytes: 2,
    read: (view: DataView, at: number) => view.getUint16(at, true),
  },
  f32: {
    type: mapDataType.FLOAT32,
    bytes: 4,
    read: (view: DataView, at: number) => view.getUint32(at, true),
  },
} as const;
const orders = ["forward", "reversed"] as const;

for (const [dtype, { type, bytes, read }] of Object.entries(formats)) {
  for (const order of orders) {
    test(`a box of ${dtype} is swizzled, with zeros outside its tensor, ${order}`, {
      skip,
    }, () => {
      emulator.set("reversed", order === "reversed" ? 1 : 0);
      const [columns, rows, matrices] = [96 + 3, 19, 2];
      const [rowStride, matrixStride] = [112, 112 * 21];
      const across = 128 / bytes;
      const boxRows = 12;
      const boxBytes = 128 * boxRows;
      const count = matrices * matrixStride;
      // No element is 0, so that zeros outside the tensor can be told from elements.
      const values = bytes === 2 ? new Uint16Array(count) : new Uint32Array(count);
      for (let index = 0; index < count; index++) values[index] = index + 1;
      const memory = bare.put(values);
      const out = bare.allocate(boxBytes);
      const strides = [rowStride * bytes, matrixStride * bytes];
      assert.equal(
        encode({ type, memory, sizes: [columns, rows, matrices], strides, box: [across, boxRows, 1] }),
        0,
      );
      const entry = bare.load(code(boxBytes), "hf");
      const corner = fc.tuple(
        fc.integer({ min: -across - 1, max: columns + 1 }),
        fc.integer({ min: -boxRows - 1, max: rows + 1 }),
        fc.integer({ min: -1, max: matrices }),
      );
      const check = (at: Corner): void => {
        assert.deepEqual(bring(entry, out, at), [0, ""]);
        const actual = new DataView(bare.read(out, new Uint8Array(boxBytes)).buffer);
        for (let row = 0; row < boxRows; row++) {
          for (let column = 0; column < across; column++) {
            const [x, y, matrix] = [at[0] + column, at[1] + row, at[2]];
            const isInside = x >= 0 && x < columns && y >= 0 && y < rows && matrix >= 0 && matrix < matrices;
            // The row's index modulo 8 permutes its eight chunks of 16 bytes.
            const chunk = Math.floor((column * bytes) / 16) ^ (row % 8);
            const offset = row * 128 + chunk * 16 + ((column * bytes) % 16);
            const expected = isInside ? matrix * matrixStride + y * rowStride + x + 1 : 0;
            assert.equal(read(actual, offset), expected, `row ${row}, column ${column} from ${at}`);
          }
        }
      };
      const examples: [Corner][] = [[[0, 0, 0]], [[32, 7, 1]], [[-3, -5, 1]], [[90, 15, 0]], [[0, 0, 2]]];
      fc.assert(fc.property(corner, check), { numRuns: 60, examples });
    });
  }
}

test("a box of TF32 is rounded to nearest even, and infinities and NaN stay as they are", { skip }, () => {
  const rounded: readonly (readonly [bits: number, expected: number])[] = [
    [0x3f80_0fff, 0x3f80_0000],
    [0x3f80_1001, 0x3f80_2000],
    // Ties.
    [0x3f80_1000, 0x3f80_0000],
    [0xbf80_3000, 0xbf80_4000],
    // A carry to the next exponent, to infinity, and from a subnormal.
    [0x3fff_ffff, 0x4000_0000],
    [0x7f7f_ffff, 0x7f80_0000],
    [0x007f_ffff, 0x0080_0000],
    [0x7f80_0000, 0x7f80_0000],
    [0x7fc0_0001, 0x7fc0_0001],
  ];
  const memory = bare.put(Uint32Array.from({ length: 32 }, (_, index) => rounded[index]?.[0] ?? 0));
  const out = bare.allocate(128);
  const { TFLOAT32: type } = mapDataType;
  assert.equal(encode({ type, memory, sizes: [32, 1, 1], strides: [128, 128], box: [32, 1, 1] }), 0);
  assert.deepEqual(bring(bare.load(code(128), "hf"), out, [0, 0, 0]), [0, ""]);
  const actual = new Uint32Array(bare.read(out, new Uint8Array(128)).buffer);
  assert.deepEqual(
    rounded.map((_, index) => actual[index]),
    rounded.map(([, expected]) => expected),
  );
});

const plain = { sizes: [64, 32, 2], strides: [256, 8192], box: [32, 8, 1] } as const;

test("a tensor map that the hardware can't use is not encoded", { skip }, () => {
  const memory = bare.allocate(16_384);
  const good: Description = { memory, ...plain };
  assert.equal(encode(good), 0);
  const wrong: readonly (readonly [number, Partial<Description>])[] = [
    [invalidValue, { mapAddress: mapAddress + 32 }],
    [invalidValue, { memory: memory + 8 }],
    [invalidValue, { memory: 0 }],
    [invalidValue, { type: 16 }],
    [invalidValue, { rank: 0 }],
    [invalidValue, { rank: 6 }],
    [invalidValue, { sizes: [0, 32, 2] }],
    [invalidValue, { sizes: [64, 2 ** 32 + 1, 2] }],
    [invalidValue, { strides: [264, 8192] }],
    [invalidValue, { strides: [256, 8200] }],
    [invalidValue, { strides: [256, 2 ** 40] }],
    [invalidValue, { box: [0, 8, 1] }],
    [invalidValue, { box: [36, 8, 1] }],
    [invalidValue, { box: [30, 8, 1] }],
    [invalidValue, { box: [32, 257, 1] }],
    [invalidValue, { elementStrides: [1, 9, 1] }],
    [invalidValue, { elementStrides: [1, 0, 1] }],
    [invalidValue, { flags: [3, 3, 3, 0] }],
    [invalidValue, { flags: [0, 7, 3, 0] }],
    [invalidValue, { flags: [0, 3, 4, 0] }],
    [invalidValue, { flags: [0, 3, 3, 2] }],
    // The hardware accepts these; the emulator does not implement them.
    [notSupported, { type: 13 }],
    [notSupported, { rank: 2 }],
    [notSupported, { box: [32, 8, 2] }],
    [notSupported, { elementStrides: [1, 2, 1] }],
    [notSupported, { flags: [0, 0, 3, 0] }],
    [notSupported, { flags: [0, 3, 3, 1] }],
  ];
  for (const [status, changes] of wrong) {
    assert.equal(encode({ ...good, ...changes }), status, JSON.stringify(changes));
  }
  emulator.set("computeMajor", 8);
  assert.equal(encode(good), notSupported);
});

test("an invalid box ends the launch with a message about its fault", { skip }, () => {
  const memory = bare.allocate(2 * 8192);
  const out = bare.allocate(1024);
  const faultOf = (changes: Partial<Description>, entry: number, corner: Corner = [0, 0, 0]) => {
    emulator.reset();
    assert.equal(encode({ memory, ...plain, ...changes }), 0);
    const [status, text] = bring(entry, out, corner);
    emulator.reset();
    return [status, text.replace(/ in line .*$/, "")];
  };
  const entry = bare.load(code(1024), "hf");
  assert.deepEqual(faultOf({}, entry), [0, ""]);
  const shifted = bare.load(code(1024, 128), "hf");
  assert.deepEqual(faultOf({}, shifted), [misaligned, "hf: a box at a misaligned address"]);
  assert.deepEqual(faultOf({ box: [16, 8, 1] }, entry), [
    launchFailed,
    "hf: a box that is not 128 bytes across",
  ]);
  // Two matrices fit; the third is only in the tensor map.
  const three = { sizes: [64, 32, 16] };
  assert.deepEqual(faultOf(three, entry, [0, 0, 1]), [0, ""]);
  assert.deepEqual(faultOf(three, entry, [0, 0, 15]), [
    illegalAddress,
    "hf: a copy from memory that is not device memory",
  ]);
  const tooLarge = bare.load(code(1024).replace("tile + 1024", "tile"), "hf");
  assert.deepEqual(faultOf({ box: [32, 32, 1] }, tooLarge), [
    illegalAddress,
    "hf: a copy that does not go to the block's dynamic shared memory",
  ]);
  block.bytes.fill(0);
  emulator.reset();
  assert.match(bring(entry, out, [0, 0, 0])[1], /hf: a tensor map that was not encoded in line/);
});

test("an mbarrier counts all bytes of a box, also those outside the tensor", { skip }, () => {
  const memory = bare.allocate(16_384);
  const out = bare.allocate(1024);
  for (const [expected, left] of [
    [1024, undefined],
    [1008, -16],
    [1040, 16],
  ] as const) {
    emulator.reset();
    assert.equal(encode({ memory, ...plain }), 0);
    const entry = bare.load(
      code(1024).replace(
        "mbarrierArriveExpectTx(mbarrier, 1024)",
        `mbarrierArriveExpectTx(mbarrier, ${expected})`,
      ),
      "hf",
    );
    const [status, text] = bring(entry, out, [48, 28, 0]);
    if (left === undefined) assert.deepEqual([status, text], [0, ""]);
    else assert.match(text, new RegExp(`lacks 0 of 1 arrivals and ${left} bytes`));
  }
});
