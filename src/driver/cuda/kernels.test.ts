/** Kernels on CUDA: their arguments, the rejection of wrong ones before CUDA is called, and load errors. */

import assert from "node:assert/strict";
import test, { afterEach, describe } from "node:test";
import fc from "fast-check";
import { emulatorMissing, openEmulator } from "../../../test/support/emulator.js";
import { heldOnEmulator, openBench, withEmulatorDriver } from "../../../test/support/emulator-driver.js";
import { span } from "../../units/index.js";
import { basicKernels } from "../basic-kernels.js";
import type { KernelSource, Launch } from "../driver.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();

afterEach(() => {
  if (!skip) emulator.reset();
});

/** Writes its arguments in the order of its parameters, and every thread's share of the grid. */
const witness: KernelSource = {
  name: "witness",
  parameters: ["in", "i32", "out", "f64", "u32", "inout", "f32"],
  cuda: {
    entry: "hf_witness",
    threads: 64,
    code: `extern "C" __global__ void __launch_bounds__(64) hf_witness(const unsigned* from, int i, double* out, double d,
                                                      unsigned u, unsigned* both, float f) {
  if (blockIdx.x == 0u && threadIdx.x == 0u) {
    out[0] = (double)from[0];
    out[1] = (double)i;
    out[2] = d;
    out[3] = (double)u;
    out[4] = (double)both[0];
    out[5] = (double)f;
    both[0] = from[0] + 1u;
  }
  both[1u + blockIdx.x * blockDim.x + threadIdx.x] = gridDim.x;
}
`,
  },
};

describe("arguments", { skip }, () => {
  test("of every type are passed unchanged, for any value", () => {
    withEmulatorDriver({}, (driver) => {
      const { memory, stream, read, write } = openBench(driver);
      const kernel = driver.loadKernel(witness);
      assert.deepEqual(
        [kernel.name, kernel.parameters, kernel.workspaceBytes],
        ["witness", witness.parameters, 0],
      );
      const [from, out, both] = [
        span(memory.address + 12, 4),
        span(memory.address + 1024, 48),
        span(memory.address + 4100, 4 * 257),
      ];
      const arbitrary = fc.record({
        a: fc.integer({ min: 0, max: 2 ** 32 - 2 }),
        b: fc.integer({ min: 0, max: 2 ** 32 - 1 }),
        i: fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }),
        u: fc.integer({ min: 0, max: 2 ** 32 - 1 }),
        d: fc.double(),
        f: fc.double(),
        blocks: fc.integer({ min: 1, max: 4 }),
      });
      fc.assert(
        fc.property(arbitrary, ({ a, b, i, u, d, f, blocks }) => {
          write(from, Uint32Array.of(a));
          write(both, new Uint32Array(257).fill(b, 0, 1));
          driver.launch(stream, { kernel, blocks, arguments: [from, i, out, d, u, both, f] });
          assert.deepEqual([...new Float64Array(read(out).buffer)], [a, i, d, u, b, Math.fround(f)]);
          const [first, ...shares] = new Uint32Array(read(both).buffer);
          assert.equal(first, a + 1);
          assert.deepEqual(
            shares,
            Array.from({ length: 256 }, (_, index) => (index < 64 * blocks ? blocks : 0)),
          );
        }),
        {
          numRuns: 60,
          examples: [
            [
              {
                a: 2 ** 32 - 2,
                b: 2 ** 32 - 1,
                i: -(2 ** 31),
                u: 2 ** 32 - 1,
                d: Math.PI,
                f: 0.1,
                blocks: 1,
              },
            ],
            [{ a: 0, b: 0, i: 2 ** 31 - 1, u: 0, d: -0, f: -0, blocks: 2 }],
            [{ a: 1, b: 2, i: -1, u: 3, d: Number.NaN, f: Number.NEGATIVE_INFINITY, blocks: 3 }],
            [{ a: 1, b: 2, i: -1, u: 3, d: 5e-324, f: 2 ** -149, blocks: 4 }],
          ],
        },
      );
    });
  });

  test("of the wrong kind are rejected with the valid ones, and CUDA is not called", () => {
    withEmulatorDriver({}, (driver) => {
      const { memory, stream } = openBench(driver);
      const kernel = driver.loadKernel(basicKernels.fill);
      const dead = span(memory.address + memory.size - 4, 8);
      const wrong: readonly (readonly [string, RegExp, Omit<Launch, "kernel">])[] = [
        ["BAD_ARGUMENT", /-1 blocks/, { blocks: -1, arguments: [memory, 1, 1] }],
        ["BAD_ARGUMENT", /1.5 blocks/, { blocks: 1.5, arguments: [memory, 1, 1] }],
        ["BAD_ARGUMENT", /2147483648 blocks/, { blocks: 2 ** 31, arguments: [memory, 1, 1] }],
        ["BAD_ARGUMENT", /2 arguments; it takes 3 \(out, f32, u32\)/, { blocks: 1, arguments: [memory, 1] }],
        ["BAD_ARGUMENT", /4 arguments; it takes 3/, { blocks: 1, arguments: [memory, 1, 1, 1] }],
        [
          "BAD_ARGUMENT",
          /Argument 0 of kernel "fill" \(out\) is 5; pass a span/,
          { blocks: 1, arguments: [5, 1, 1] },
        ],
        [
          "BAD_ARGUMENT",
          /Argument 1 of kernel "fill" \(f32\) is a span; pass a number/,
          { blocks: 1, arguments: [memory, memory, 1] },
        ],
        ["BAD_ARGUMENT", /Argument 2 .* is -1; pass a whole/, { blocks: 1, arguments: [memory, 1, -1] }],
        ["BAD_ARGUMENT", /is 0.5; pass a whole number/, { blocks: 1, arguments: [memory, 1, 0.5] }],
        ["BAD_ARGUMENT", /is 4294967296; pass/, { blocks: 1, arguments: [memory, 1, 2 ** 32] }],
        ["DEAD_ADDRESS", /Argument 0 of kernel "fill" \(out\) is/, { blocks: 1, arguments: [dead, 1, 1] }],
        ["DEAD_ADDRESS", /Argument 0/, { blocks: 1, arguments: [span(0, 4), 1, 1] }],
        // A launch of no blocks is checked too.
        ["DEAD_ADDRESS", /Argument 0/, { blocks: 0, arguments: [dead, 1, 1] }],
      ];
      for (const [code, message, launch] of wrong) {
        assert.throws(() => driver.launch(stream, { kernel, ...launch }), { code, message });
      }
      assert.equal(emulator.calls("cuLaunchKernel"), 0);
      driver.launch(stream, { kernel, blocks: 1, arguments: [memory, 1, 1] });
      assert.equal(emulator.calls("cuLaunchKernel"), 1);
    });
  });

  test("of a launch of no blocks are accepted, and nothing is launched", () => {
    withEmulatorDriver({}, (driver) => {
      const { memory, stream } = openBench(driver);
      const kernel = driver.loadKernel(basicKernels.fill);
      driver.launch(stream, { kernel, blocks: 0, arguments: [memory, 1, 100] });
      assert.equal(emulator.calls("cuLaunchKernel"), 0);
    });
  });

  test("are none for a kernel without parameters", () => {
    const code = 'extern "C" __global__ void __launch_bounds__(32) hf_none() {}\n';
    const none: KernelSource = {
      name: "none",
      parameters: [],
      cuda: { code, entry: "hf_none", threads: 32 },
    };
    withEmulatorDriver({}, (driver) => {
      const { stream } = openBench(driver);
      driver.launch(stream, { kernel: driver.loadKernel(none), blocks: 2, arguments: [] });
      driver.synchronize(stream);
      assert.equal(emulator.calls("cuLaunchKernel"), 1);
    });
  });
});

test("the basic kernels give the same bits on CUDA with blocks and threads in any order", { skip }, () => {
  const elements = 5000;
  const results = [0, 1].map((reversed) =>
    withEmulatorDriver({}, (driver) => {
      emulator.set("reversed", reversed);
      const { memory, stream, read } = openBench(driver);
      const at = (index: number) => span(memory.address + index * 4 * elements, 4 * elements);
      const [fill, add] = [driver.loadKernel(basicKernels.fill), driver.loadKernel(basicKernels.add)];
      driver.launch(stream, { kernel: fill, blocks: 2, arguments: [at(0), 0.1, elements] });
      driver.launch(stream, { kernel: fill, blocks: 2, arguments: [at(1), 0.2, elements] });
      driver.launch(stream, { kernel: add, blocks: 2, arguments: [at(0), at(1), at(2), elements] });
      return new Float32Array(read(at(2)).buffer);
    }),
  );
  assert.ok(results[0]!.every((value) => value === Math.fround(Math.fround(0.1) + Math.fround(0.2))));
  assert.deepEqual(results[1], results[0]);
});

describe("a kernel that does not load", { skip }, () => {
  const load = (source: KernelSource) =>
    withEmulatorDriver({}, (driver) => {
      const before = heldOnEmulator();
      let error: unknown;
      try {
        driver.loadKernel(source);
      } catch (caught) {
        error = caught;
      }
      assert.deepEqual(heldOnEmulator(), before);
      return error as { code: string; message: string; numbers: Record<string, unknown> };
    });

  test("because it has no CUDA code is rejected by name, and no library is opened", () => {
    const { wasm, name, parameters } = basicKernels.fill;
    const { code, message } = load({ name, parameters, wasm: wasm! });
    assert.equal(code, "UNSUPPORTED");
    assert.match(message, /Kernel "fill" has no CUDA code.*or the CPU/);
    assert.equal(emulator.calls("nvrtcCreateProgram"), 0);
  });

  test("because it does not compile is reported by name, with the architecture and the compiler's log", () => {
    emulator.set("computeMajor", 8);
    emulator.set("computeMinor", 6);
    const code = `extern "C" __global__ void __launch_bounds__(32) hf_wrong(float* out) {
  out[0] = no_such_thing;
}
`;
    const source = {
      name: "softmax of 3",
      parameters: ["out"],
      cuda: { code, entry: "hf_wrong", threads: 32 },
    } as const;
    const error = load(source);
    assert.equal(error.code, "KERNEL_FAILED");
    assert.match(
      error.message,
      /^Kernel "softmax of 3" did not compile for sm_86 \(NVRTC_ERROR_COMPILATION\):\n.*no_such_thing/s,
    );
    assert.equal(error.numbers["kernel"], "softmax of 3");
    assert.equal(emulator.calls("nvrtcDestroyProgram"), 1);
  });

  test("because its code has another entry unloads its module", () => {
    const { cuda, ...rest } = basicKernels.fill;
    const error = load({ ...rest, cuda: { ...cuda!, entry: "hf_other" } });
    assert.equal(error.code, "DRIVER_FAILED");
    assert.match(
      error.message,
      /^cuModuleGetFunction\(.*name "hf_other"\) failed: CUDA_ERROR_NOT_FOUND \(500\)/,
    );
  });
});

test("an unloaded kernel releases its resources, and its source can be loaded again", { skip }, () => {
  withEmulatorDriver({}, (driver) => {
    const before = heldOnEmulator();
    const kernels = [basicKernels.fill, basicKernels.fill, basicKernels.add].map((source) =>
      driver.loadKernel(source),
    );
    assert.equal(new Set(kernels.map(({ id }) => id)).size, 3);
    assert.equal(emulator.get("modules"), before.modules + 3);
    for (const kernel of kernels) driver.unloadKernel(kernel);
    assert.deepEqual(heldOnEmulator(), before);
    const { memory, stream } = openBench(driver, 64);
    const kernel = driver.loadKernel(basicKernels.fill);
    driver.launch(stream, { kernel, blocks: 1, arguments: [memory, 2, 3] });
    driver.synchronize(stream);
  });
});

test("arguments are in host memory that does not move: garbage collection changes nothing", { skip }, () => {
  withEmulatorDriver({}, (driver) => {
    const { memory, stream, read } = openBench(driver);
    const kernel = driver.loadKernel(basicKernels.fill);
    const cells = 200;
    for (let index = 0; index < cells; index++) {
      const target = span(memory.address + 4 * index, 4);
      driver.launch(stream, { kernel, blocks: 1, arguments: [target, index + 0.5, 1] });
      // Garbage of the size of a launch's allocations, and much larger.
      if (index % 10 === 0) Array.from({ length: 2000 }, () => new Uint8Array(1024));
    }
    const actual = new Float32Array(read(span(memory.address, 4 * cells)).buffer);
    assert.deepEqual(
      [...actual],
      Array.from({ length: cells }, (_, index) => index + 0.5),
    );
  });
});
