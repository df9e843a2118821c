/** A recorded graph: its commands, and the check that they can still run. */

import { HoldfastError } from "../../errors/index.js";
import { formatSpan } from "../../units/index.js";
import { type Command, listSpans } from "./commands.js";
import type { DeviceMemory } from "./memory.js";

export class RecordedGraph {
  readonly id: number;
  readonly commands: readonly Command[];
  #isInstantiated = false;
  /** The driver's invalidation count when the commands were last checked. */
  #checkedAt = -1;

  constructor(id: number, commands: readonly Command[]) {
    this.id = id;
    this.commands = commands;
  }

  instantiate(memory: DeviceMemory, invalidations: number): void {
    this.#requireAlive(memory, invalidations);
    this.#isInstantiated = true;
  }

  /** `invalidations` counts releases and unloads. If it is unchanged since the last check, the graph is still valid. */
  requireLaunchable(memory: DeviceMemory, invalidations: number): void {
    if (!this.#isInstantiated) {
      const message = `Graph #${this.id} (${this.commands.length} nodes) was launched before it was instantiated. Call instantiate(graph) once before the first launch.`;
      throw new HoldfastError("CAPTURE_ORDER", message, { numbers: { id: this.id } });
    }
    if (invalidations !== this.#checkedAt) this.#requireAlive(memory, invalidations);
  }

  #requireAlive(memory: DeviceMemory, invalidations: number): void {
    for (const [index, command] of this.commands.entries()) {
      const node = `Node ${index} of graph #${this.id} (${command.kind})`;
      const dead = listSpans(command).find((range) => !memory.holds(range));
      if (dead) {
        const message = `${node} touches ${formatSpan(dead)}, which was released after the capture. Keep the memory until the graph is destroyed.`;
        throw new HoldfastError("DEAD_ADDRESS", message, {
          numbers: { graph: this.id, address: dead.address },
        });
      }
      if (command.kind === "launch" && command.kernel.isUnloaded) {
        const message = `${node} launches kernel "${command.kernel.name}", which was unloaded after the capture. Keep the kernel until the graph is destroyed.`;
        throw new HoldfastError("CLOSED", message, {
          numbers: { graph: this.id, kernel: command.kernel.id },
        });
      }
      if ("host" in command && command.host.isFree) {
        const message = `${node} uses host memory #${command.host.id}, which was freed after the capture. Keep the memory until the graph is destroyed.`;
        throw new HoldfastError("CLOSED", message, { numbers: { graph: this.id, host: command.host.id } });
      }
    }
    this.#checkedAt = invalidations;
  }
}
