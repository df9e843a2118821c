/** checkpoint: runs a function that saves nothing for backward, and runs it again in backward. */

import { currentRecomputation, isRecording, Recomputation } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";
import type { DeviceArray } from "../ops/index.js";
import { drawPosition, withDrawPosition } from "./seed.js";
import { Tensor } from "./tensor.js";

/**
 * Runs a function without saving its intermediate results for backward, which runs it again instead: less memory for more time, like
 * PyTorch's `torch.utils.checkpoint.checkpoint`. Losses and gradients have the same bits as without it. The function may use any
 * tensors, parameters and modules, and returns tensors, alone or in arrays and objects. Tensors that it makes and does not return are
 * freed.
 *
 * Both runs draw the same random numbers, and see modules in the same mode. The function must run the same ops both times. Inside
 * another `checkpoint` it is part of the outer one.
 *
 * @example
 * ```ts
 * import { checkpoint, device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const block = new nn.Sequential(new nn.Linear(4, 64), new nn.GELU(), new nn.Linear(64, 4)).to(cpu);
 * cpu.step(() => {
 *   const x = ones([2, 4]);
 *   checkpoint((input) => block.forward(input), x).sum().backward();
 * });
 * console.log(block.parameters().every(({ grad }) => grad !== null)); // → true
 * cpu.close();
 * ```
 */
export function checkpoint<Operands extends readonly unknown[], Result>(
  fn: (...operands: Operands) => Result,
  ...operands: Operands
): Result {
  if (!isRecording() || currentRecomputation()) return requireSync(fn(...operands));
  const position = drawPosition();
  const recomputation = new Recomputation(() => withDrawPosition(position, () => void fn(...operands)));
  return recomputation.runFirst(
    () => requireSync(fn(...operands)),
    (result) => arraysIn(result),
  );
}

/** The arrays of the tensors in a result. */
function arraysIn(result: unknown): readonly DeviceArray[] {
  if (result instanceof Tensor) return [result.value.array];
  if (result instanceof Map) return [...result.values()].flatMap(arraysIn);
  if (Array.isArray(result)) return result.flatMap(arraysIn);
  return typeof result === "object" && result !== null ? Object.values(result).flatMap(arraysIn) : [];
}

function requireSync<T>(result: T): T {
  if (!(result instanceof Promise)) return result;
  result.catch(() => undefined);
  throw new HoldfastError(
    "BAD_ARGUMENT",
    "checkpoint got an async function: backward could not run it again. Await outside checkpoint().",
  );
}
