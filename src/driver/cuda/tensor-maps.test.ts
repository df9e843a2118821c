/** Tensor maps: kernels receive them, they follow the launch's arguments, and invalid ones are rejected. */

import assert from "node:assert/strict";
import test, { afterEach, describe } from "node:test";
import { emulatorMissing, openEmulator } from "../../../test/support/emulator.js";
import { openBench, withEmulatorDriver } from "../../../test/support/emulator-driver.js";
import { span } from "../../units/index.js";
import type { KernelSource, TensorMap } from "../driver.js";
import type { CudaDriver } from "./driver.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();

afterEach(() => {
  if (!skip) emulator.reset();
});

const boxRows = 16;
const boxBytes = 128 * boxRows;

/** Loads the box at the start of a matrix by TMA, and writes the box and the other arguments. */
function boxKernel(changes: Partial<TensorMap> = {}): KernelSource {
  const map: TensorMap = {
    ...{ parameter: 1, dtype: "f32", columns: 3, rows: 4, rowStride: 5, matrices: 6, matrixStride: 7 },
    ...{ box: { columns: 32, rows: boxRows }, ...changes },
  };
  return {
    name: "box",
    parameters: ["out", "in", "i32", "i32", "i32", "i32", "i32", "i32", "f64"],
    cuda: {
      entry: "hf_box",
      threads: 32,
      requiredCapability: "9.0",
      sharedBytes: boxBytes + 2048,
      maps: [map],
      code: `extern "C" __global__ void __launch_bounds__(32) hf_box(unsigned char* out, const __grid_constant__ TensorMap from,
    int matrix, int columns, int rows, int rowStride, int matrices, int matrixStride, double last) {
  dynamicSharedMemory(smem, ${boxBytes + 2048});
  unsigned char* tile = smem + (1024u - (unsigned)(reinterpret_cast<unsigned long long>(smem) % 1024u)) % 1024u;
  Mbarrier* barrier = reinterpret_cast<Mbarrier*>(tile + ${boxBytes});
  if (threadIdx.x == 0u) {
    mbarrierInit(barrier, 1u);
    mbarrierArriveExpectTx(barrier, ${boxBytes}u);
    tmaLoad(tile, &from, 0, 0, matrix, barrier);
  }
  __syncthreads();
  mbarrierWait(barrier, 0u);
  for (unsigned index = threadIdx.x; index < ${boxBytes}u; index += 32u) out[index] = tile[index];
  if (threadIdx.x == 0u) {
    const int whole[5] = {columns, rows, rowStride, matrices, matrixStride};
    for (int index = 0; index < 5; ++index) reinterpret_cast<double*>(out + ${boxBytes})[index] = (double)whole[index];
    reinterpret_cast<double*>(out + ${boxBytes})[5] = last;
  }
}
`,
    },
  };
}

describe("a tensor map", { skip }, () => {
  const sourceFloats = 4096;
  /** Loads the kernel on a new driver, with memory that contains numbered floats. */
  function withTma(
    use: (bench: ReturnType<typeof openBoxes>) => void,
    changes: Partial<TensorMap> = {},
  ): void {
    withEmulatorDriver({}, (driver) => use(openBoxes(driver, changes)));
  }
  function openBoxes(driver: CudaDriver, changes: Partial<TensorMap>) {
    const { memory, stream, read, write } = openBench(driver);
    const kernel = driver.loadKernel(boxKernel(changes));
    const source = span(memory.address + 32_768, 4 * sourceFloats);
    write(
      source,
      Float32Array.from({ length: sourceFloats }, (_, index) => index + 1),
    );
    const out = span(memory.address + 64, boxBytes + 48);
    /** The first float's index, columns, rows, row stride, matrices, matrix stride. */
    function launch(from: number, sizes: readonly number[], { matrix = 0, blocks = 1 } = {}): void {
      const slice = span(source.address + 4 * from, 4 * (sourceFloats - from));
      driver.launch(stream, { kernel, blocks, arguments: [out, slice, matrix, ...sizes, 0.1] });
    }
    /** The floats of the box by rows, without the swizzle. */
    function box(): number[][] {
      const floats = new Float32Array(read(out).buffer, 0, boxBytes / 4);
      return Array.from({ length: boxRows }, (_, row) =>
        Array.from({ length: 32 }, (_, column) => floats[32 * row + (column ^ (4 * (row % 8)))]!),
      );
    }
    const scalars = () => [...new Float64Array(read(out).buffer, boxBytes, 6)];
    return { driver, stream, kernel, launch, box, scalars };
  }

  /** The expected box at the start of a matrix. */
  const boxOf = (first: number, columns: number, rows: number, rowStride: number): number[][] =>
    Array.from({ length: boxRows }, (_, row) =>
      Array.from({ length: 32 }, (_, column) =>
        row < rows && column < columns ? first + row * rowStride + column + 1 : 0,
      ),
    );

  test("is passed to the kernel, with the other arguments unchanged", () => {
    withTma(({ launch, box, scalars }) => {
      launch(8, [20, 10, 24, 3, 512], { matrix: 2 });
      assert.deepEqual(box(), boxOf(8 + 2 * 512, 20, 10, 24));
      assert.deepEqual(scalars(), [20, 10, 24, 3, 512, 0.1]);
    });
  });

  test("is encoded again only if its address or one of its numbers has changed", () => {
    withTma(({ launch, box }) => {
      const launches = [
        [0, [20, 10, 24, 2, 512], 512, 24],
        [16, [20, 10, 24, 2, 512], 528, 24],
        [16, [21, 10, 24, 2, 512], 528, 24],
        [16, [21, 11, 24, 2, 512], 528, 24],
        [16, [21, 11, 28, 2, 512], 528, 28],
        [16, [21, 11, 28, 3, 512], 528, 28],
        [16, [21, 11, 28, 3, 516], 532, 28],
        [0, [20, 10, 24, 2, 512], 512, 24],
      ] as const;
      for (const [index, [from, sizes, first, rowStride]] of launches.entries()) {
        for (let time = 0; time < 3; time++) {
          launch(from, sizes, { matrix: 1 });
          assert.deepEqual(box(), boxOf(first, sizes[0], sizes[1], rowStride));
          assert.equal(emulator.calls("cuTensorMapEncodeTiled"), index + 1);
        }
      }
    });
  });

  test("has one matrix if the matrix stride is 0 or the number of matrices is 1", () => {
    withTma(({ launch, box }) => {
      const zeros = boxOf(0, 0, 0, 0);
      for (const [matrices, matrixStride] of [
        [3, 0],
        [1, 0],
        [1, 7],
        [1, -1],
      ] as const) {
        launch(4, [32, 16, 32, matrices, matrixStride]);
        assert.deepEqual(box(), boxOf(4, 32, 16, 32));
        launch(4, [32, 16, 32, matrices, matrixStride], { matrix: 1 });
        assert.deepEqual(box(), zeros);
      }
    });
  });

  test("keeps its value in a captured launch", () => {
    withTma(({ driver, stream, launch, box }) => {
      driver.beginCapture(stream, "thread-local");
      launch(0, [32, 16, 32, 1, 0]);
      const graph = driver.endCapture(stream);
      driver.instantiate(graph);
      launch(64, [5, 2, 8, 1, 0]);
      assert.deepEqual(box(), boxOf(64, 5, 2, 8));
      driver.launchGraph(stream, graph);
      assert.deepEqual(box(), boxOf(0, 32, 16, 32));
      driver.destroyGraph(graph);
    });
  });

  test("is rejected with the argument and the reason if CUDA would reject it, and CUDA is not called", () => {
    withTma(({ launch }) => {
      const wrong: readonly (readonly [RegExp, number, readonly number[]])[] = [
        [
          /Argument 1 of kernel "box" \(in\) starts at 0x\w+4; .* must be aligned to 16 bytes/,
          1,
          [8, 8, 8, 1, 0],
        ],
        [
          /Argument 3 of kernel "box" \(i32\) is 0; the tensor map of argument 1 .* 1 or more/,
          0,
          [0, 8, 8, 1, 0],
        ],
        [/Argument 4 .* is -1; .* 1 or more/, 0, [8, -1, 8, 1, 0]],
        [/Argument 5 .* is 9; .* multiple of 4 elements of f32, 16 bytes/, 0, [8, 8, 9, 1, 0]],
        [/Argument 5 .* is 0; .* multiple of 4/, 0, [8, 8, 0, 1, 0]],
        [/Argument 5 .* is -4; .* multiple of 4/, 0, [8, 8, -4, 1, 0]],
        [/Argument 6 .* is 0; .* 1 or more/, 0, [8, 8, 8, 0, 0]],
        [/Argument 7 .* is 66; .* multiple of 4/, 0, [8, 8, 8, 2, 66]],
        [/Argument 7 .* is -64; .* multiple of 4/, 0, [8, 8, 8, 2, -64]],
      ];
      for (const [message, from, sizes] of wrong) {
        assert.throws(() => launch(from, sizes), { code: "BAD_ARGUMENT", message });
      }
      assert.equal(emulator.calls("cuTensorMapEncodeTiled"), 0);
      assert.equal(emulator.calls("cuLaunchKernel"), 0);
    });
  });

  test("is rejected if it exceeds its memory by one element, and accepted if it ends there", () => {
    withTma(({ launch, box }) => {
      const beyond: readonly (readonly [RegExp, number, readonly number[]])[] = [
        [
          /Argument 1 of kernel "box" \(in\) has 16384 bytes; .* tensor map of 1 × 129 × 32 elements of f32, which needs 16512 bytes/,
          0,
          [32, 129, 32, 1, 0],
        ],
        [/has 16368 bytes; .* needs 16384 bytes/, 4, [32, 128, 32, 3, 0]],
        [/map of 3 × 8 × 8 elements of f32, .* needs 16640 bytes/, 0, [8, 8, 8, 3, 2048]],
      ];
      for (const [message, from, sizes] of beyond) {
        assert.throws(() => launch(from, sizes), { code: "BAD_ARGUMENT", message });
      }
      assert.equal(emulator.calls("cuTensorMapEncodeTiled"), 0);
      launch(0, [32, 128, 32, 1, 0]);
      assert.deepEqual(box(), boxOf(0, 32, 16, 32));
      launch(0, [8, 8, 8, 3, 2016], { matrix: 2 });
      assert.deepEqual(box(), boxOf(4032, 8, 8, 8));
    });
  });

  test("may be empty if no block is launched", () => {
    withTma(({ launch }) => {
      launch(0, [0, 0, 0, 0, 0], { blocks: 0 });
      assert.equal(emulator.calls("cuTensorMapEncodeTiled"), 0);
    });
  });

  test("is encoded again after a failure of CUDA", () => {
    withTma(({ launch, box }) => {
      launch(0, [20, 10, 24, 1, 0]);
      emulator.fail("cuTensorMapEncodeTiled", 1, { times: 1 });
      assert.throws(
        () => launch(16, [20, 10, 24, 1, 0]),
        /cuTensorMapEncodeTiled\(.*CUDA_ERROR_INVALID_VALUE/,
      );
      launch(0, [20, 10, 24, 1, 0]);
      assert.deepEqual(box(), boxOf(0, 20, 10, 24));
      assert.equal(emulator.calls("cuTensorMapEncodeTiled"), 3);
    });
  });

  test("is rejected when the kernel is loaded if no launch could use it", () => {
    const wrong: readonly (readonly [RegExp, Partial<TensorMap>])[] = [
      [
        /^The map of argument 1 of kernel "box" has boxes of 36 columns of f32, 144 bytes; .* up to 128/,
        { box: { columns: 36, rows: 16 } },
      ],
      [/65 columns of bf16, 130 bytes/, { dtype: "bf16", box: { columns: 65, rows: 16 } }],
      [/4 columns of f16, 8 bytes; .* multiple of 16/, { dtype: "f16", box: { columns: 4, rows: 16 } }],
      [/0 columns/, { box: { columns: 0, rows: 16 } }],
      [/has boxes of 257 rows; a box needs 1 to 256/, { box: { columns: 32, rows: 257 } }],
      [/0 rows/, { box: { columns: 32, rows: 0 } }],
      [/The map of argument 2 .* is for i32; a map needs a memory parameter/, { parameter: 2 }],
      [/is for nothing/, { parameter: 9 }],
      [/takes its rows from argument 0, which is out; it must be i32/, { rows: 0 }],
      [/takes its matrixStride from argument 9, which is missing/, { matrixStride: 9 }],
    ];
    withEmulatorDriver({}, (driver) => {
      for (const [message, changes] of wrong) {
        assert.throws(() => driver.loadKernel(boxKernel(changes)), { code: "BAD_ARGUMENT", message });
      }
      const { cuda, ...rest } = boxKernel();
      const twice = { ...rest, cuda: { ...cuda!, maps: [...cuda!.maps!, ...cuda!.maps!] } };
      assert.throws(() => driver.loadKernel(twice), /is a duplicate; a parameter has one map/);
      assert.equal(emulator.calls("nvrtcCreateProgram"), 0);
    });
  });
});
