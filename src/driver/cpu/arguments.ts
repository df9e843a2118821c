/** Validates the arguments of a launch or a copy and copies them into a command. */

import { HoldfastError } from "../../errors/index.js";
import { formatSpan, type Span } from "../../units/index.js";
import { requireLaunch, requireScalar, requireSpan } from "../checks.js";
import { type Argument, isMemory, type Launch, type Parameter } from "../driver.js";
import type { Command, KernelState } from "./commands.js";
import type { DeviceMemory } from "./memory.js";

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
      spans.push(span);
      call.push(kernel.addressBase + span.address);
    } else {
      call.push(requireScalar(parameter, argument, what));
    }
  }
  return { kind: "launch", kernel, blocks, call, spans };
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
