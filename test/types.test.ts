/**
 * Types of the public interface: the compiler checks this file with the build. Each @ts-expect-error is an error that a user must see; without it
 * the build fails.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { inspect } from "node:util";
import {
  type EpochRecord,
  HoldfastError,
  type NestedList,
  type Tensor,
  type TrainingSummary,
} from "holdfast";
import { openDevice } from "./support/devices.js";
import { readRepositoryFile, repositoryRoot } from "./support/repository.js";

const cpu = openDevice({ threads: 1 });
const matrix = cpu.fromHost([1, 2, 3, 4], [2, 2], "f32");

/** Compiles only if both types are the same. */
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : never;
const same = <A, B>(_isSame: Same<A, B>): void => {};

test("values that are read have their types without a cast", () => {
  const rows = matrix.tolist<number[][]>();
  const elements = matrix.dataSync();
  same<
    typeof elements,
    | Float32Array<ArrayBuffer>
    | Float64Array<ArrayBuffer>
    | Int32Array<ArrayBuffer>
    | Int8Array<ArrayBuffer>
    | Uint8Array<ArrayBuffer>
  >(true);
  const sum: number = rows.flat().reduce((a, b) => a + b) + elements.length + matrix.sum().item();
  assert.equal(sum, 24);
  const list = matrix.tolist();
  same<typeof list, NestedList>(true);
});

test("chunks of a list of sizes are a tuple", () => {
  const [head, tail] = matrix.split([1, 1]);
  const many = matrix.split(1);
  const sizes: readonly number[] = [2];
  const some = matrix.split(sizes);
  same<typeof head, Tensor>(true);
  same<typeof tail, Tensor>(true);
  same<typeof many, Tensor[]>(true);
  same<typeof some, Tensor[]>(true);
  assert.deepEqual([head.tolist(), tail.tolist(), many.length, some.length], [[[1, 2]], [[3, 4]], 2, 1]);
  // @ts-expect-error: there is no third chunk.
  const third = (): unknown => matrix.split([1, 1])[2];
  assert.equal(third(), undefined);
});

test("an async function in a step is an error of types, and at run time", () => {
  const result = cpu.step(() => matrix.sum().item());
  same<typeof result, number>(true);
  const isAsync = (error: unknown): boolean => error instanceof HoldfastError && error.code === "STEP_ASYNC";
  // @ts-expect-error: the step would end before the function does.
  assert.throws(() => cpu.step(async () => matrix.sum().item()), isAsync);
  // @ts-expect-error: a promise of nothing is one too.
  assert.throws(() => cpu.step(async () => {}), isAsync);
  // @ts-expect-error: a compiled function returns tensors.
  const compiled = cpu.compile(async (x: Tensor) => x.exp());
  assert.throws(() => compiled(matrix), HoldfastError);
});

test("the epochs of a training are typed records", () => {
  const losses = ({ epochs }: TrainingSummary): number[] => epochs.map(({ loss }) => loss);
  same<TrainingSummary["epochs"], readonly EpochRecord[]>(true);
  assert.deepEqual(losses({ state: "finished", steps: 0, epochs: [] }), []);
});

test("a tensor prints itself, also inside an object and after its end", () => {
  const printed = `tensor([[1. 2.]\n        [3. 4.]], shape [2, 2], f32, ${cpu.name})`;
  assert.equal(inspect(matrix), printed);
  assert.equal(inspect({ w: matrix }), `{\n  w: ${printed.replace("\n", "\n  ")}\n}`);
  const dead = cpu.step(() => matrix.add(1));
  assert.match(inspect(dead), /^tensor\(dead: .*"add"/);
});

/** At the beginning of a line, so not in the examples of comments; or as a type within a line. */
const imported = /^(?:(?:import|export|\}).* from|import) "([^"]+)";|\bimport\("([^"]+)"\)/gm;

test("the public declarations import only dependencies of the package", () => {
  const { dependencies } = JSON.parse(readRepositoryFile("package.json")) as { dependencies: object };
  const allowed = new Set(Object.keys(dependencies));
  const visited = new Set<string>();
  const waiting = ["dist/src/index.d.ts", "dist/src/internals.d.ts"].map((path) =>
    join(repositoryRoot, path),
  );
  for (let file = waiting.pop(); file !== undefined; file = waiting.pop()) {
    if (visited.has(file)) continue;
    visited.add(file);
    for (const [, named, called] of readFileSync(file, "utf8").matchAll(imported)) {
      const specifier = named ?? called ?? "";
      if (specifier.startsWith(".")) waiting.push(join(dirname(file), specifier.replace(/\.js$/, ".d.ts")));
      else if (!specifier.startsWith("node:"))
        assert.ok(allowed.has(specifier), `${file} imports ${specifier}`);
    }
  }
  assert.ok(visited.size > 100, "the declarations were read");
});
