/** Checks what a caller passes to a launch or a copy, and copies it into the form that runs. */

import { HoldfastError } from "../../errors/index.js";
import { formatSpan, type Span } from "../../units/index.js";
import { requireLaunch, requireScalar, requireSpan } from "../checks.js";
import { type Argument, isMemory, type Launch, type Parameter } from "../driver.js";
import type { Command, KernelState } from "./commands.js";
import type { DeviceMemory } from "./memory.js";

export function lowerLaunch(
  kernel: KernelState,
  parameters: readonly Parameter[],
  { blocks, arguments: given }: Launch,
  memory: DeviceMemory,
): Command {
  requireLaunch(kernel.name, parameters, blocks, given.length);
  const call = [0, 0];
  const spans: Span[] = [];
  for (const [index, parameter] of parameters.entries()) {
    const argument = given[index] as Argument;
    const what = () => `Argument ${index} of kernel "${kernel.name}" (${parameter})`;
    if (isMemory(parameter)) {
      const span = liveSpan(memory, requireSpan(argument, what), what);
      spans.push(span);
      call.push(kernel.addressBase + span.address);
    } else {
      call.push(requireScalar(parameter, argument, what));
    }
  }
  return { kind: "launch", kernel, blocks, call, spans };
}

/** A copy of the span, once there is memory behind all of it. */
export function liveSpan(memory: DeviceMemory, { address, size }: Span, what: () => string): Span {
  const range = { address, size };
  if (!memory.holds(range)) {
    const message = `${what()} is ${formatSpan(range)}, where no memory is committed. Pass a span inside a committed part of a reservation.`;
    throw new HoldfastError("DEAD_ADDRESS", message, { numbers: { address, size } });
  }
  return range;
}
