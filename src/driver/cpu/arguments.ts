/** Validates the arguments of a launch or a copy and copies them into a command. */

import { HoldfastError } from "../../errors/index.js";
import { formatBytes, formatSpan, type Span } from "../../units/index.js";
import { requireLaunch, requireScalar, requireSpan } from "../checks.js";
import { type Argument, isMemory, type Launch, type Parameter } from "../driver.js";
import type { Command, KernelState } from "./commands.js";
import type { DeviceMemory } from "./memory.js";
import { maxWideSpan } from "./widen-addresses.js";

export function createLaunch(
  kernel: KernelState,
  parameters: readonly Parameter[],
  { blocks, arguments: args }: Launch,
  memory: DeviceMemory,
): Command {
  requireLaunch(kernel.name, parameters, blocks, args.length);
  const call = [0, 0];
  const spans: Span[] = [];
  for (const [index, parameter] of parameters.entries()) {
    const argument = args[index] as Argument;
    const what = () => `Argument ${index} of kernel "${kernel.name}" (${parameter})`;
    if (isMemory(parameter)) {
      const span = liveSpan(memory, requireSpan(argument, what), what);
      if (memory.isWide && span.size > maxWideSpan) throw tooLong(span.size, what);
      spans.push(span);
      call.push(kernel.addressBase + span.address);
    } else {
      call.push(requireScalar(parameter, argument, what));
    }
  }
  return { kind: "launch", kernel, blocks, call, spans };
}

function tooLong(size: number, what: () => string): HoldfastError {
  const message = `${what()} has ${formatBytes(size)}. With more than 4 GiB of device memory, a kernel of the CPU reaches ${formatBytes(maxWideSpan)} of one tensor. Split the tensor, or set HOLDFAST_MEMORY to 4GiB or less.`;
  return new HoldfastError("UNSUPPORTED", message, { numbers: { size, limit: maxWideSpan } });
}

/** Returns a copy of the span, after checking that all of it is committed. */
export function liveSpan(memory: DeviceMemory, { address, size }: Span, what: () => string): Span {
  const range = { address, size };
  if (!memory.holds(range)) {
    const message = `${what()} is ${formatSpan(range)}, which is not committed. Pass a span inside a committed range of a reservation.`;
    throw new HoldfastError("DEAD_ADDRESS", message, { numbers: { address, size } });
  }
  return range;
}
