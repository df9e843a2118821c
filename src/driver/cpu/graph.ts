/** A recorded graph: its commands, and the checks that they still can run. */

import { HoldfastError } from "../../errors/index.js";
import { formatSpan } from "../../units/index.js";
import { type Command, spansOf } from "./commands.js";
import type { DeviceMemory } from "./memory.js";

export class RecordedGraph {
  readonly id: number;
  readonly commands: readonly Command[];
  #isInstantiated = false;
  /** The driver's count of deaths when the commands were last found alive. */
  #checkedAtDeaths = -1;

  constructor(id: number, commands: readonly Command[]) {
    this.id = id;
    this.commands = commands;
  }

  instantiate(memory: DeviceMemory, deaths: number): void {
    this.#requireAlive(memory, deaths);
    this.#isInstantiated = true;
  }

  /** `deaths` counts releases and unloads: unless one happened since the last check, there is nothing to look at. */
  requireLaunchable(memory: DeviceMemory, deaths: number): void {
    if (!this.#isInstantiated) {
      const message = `Graph #${this.id} (${this.commands.length} nodes) was launched before it was instantiated. Call instantiate(graph) once, then launch it.`;
      throw new HoldfastError("CAPTURE_ORDER", message, { numbers: { id: this.id } });
    }
    if (deaths !== this.#checkedAtDeaths) this.#requireAlive(memory, deaths);
  }

  #requireAlive(memory: DeviceMemory, deaths: number): void {
    for (const [index, command] of this.commands.entries()) {
      const node = `Node ${index} of graph #${this.id} (${command.kind})`;
      const dead = spansOf(command).find((range) => !memory.holds(range));
      if (dead) {
        const message = `${node} touches ${formatSpan(dead)}, which was released since the capture. Keep what a graph touches as long as the graph.`;
        throw new HoldfastError("DEAD_ADDRESS", message, {
          numbers: { graph: this.id, address: dead.address },
        });
      }
      if (command.kind === "launch" && command.kernel.isUnloaded) {
        const message = `${node} launches kernel "${command.kernel.name}", which was unloaded since the capture. Keep a graph's kernels as long as the graph.`;
        throw new HoldfastError("CLOSED", message, {
          numbers: { graph: this.id, kernel: command.kernel.id },
        });
      }
      if ("host" in command && command.host.isFree) {
        const message = `${node} uses host memory #${command.host.id}, which was freed since the capture. Keep what a graph touches as long as the graph.`;
        throw new HoldfastError("CLOSED", message, { numbers: { graph: this.id, host: command.host.id } });
      }
    }
    this.#checkedAtDeaths = deaths;
  }
}
