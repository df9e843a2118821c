/** RNN, LSTM and GRU, with PyTorch's gates, parameter names and results. */

import { checkOptions } from "../../../errors/index.js";
import type { Tensor } from "../../../tensor/index.js";
import {
  RecurrentLayer,
  type RecurrentOptions,
  recurrentOptionNames,
  type SequenceOptions,
  sequenceOptionNames,
} from "./base.js";

/** Options of an `RNN` layer. */
export interface RNNOptions extends RecurrentOptions {
  /** Default: "tanh". */
  readonly nonlinearity?: "tanh" | "relu";
}

/**
 * Elman's recurrent layer: h = tanh(W_ih·x + b_ih + W_hh·h + b_hh) at each step.
 *
 * @example
 * ```ts
 * import { device, nn, randn } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.RNN(4, 3, { nonlinearity: "relu" }).to(cpu);
 * const [output, state] = layer.forward(randn([10, 2, 4]));
 * console.log(output.shape, state.shape); // → [ 10, 2, 3 ] [ 1, 2, 3 ]
 * cpu.close();
 * ```
 */
export class RNN extends RecurrentLayer {
  constructor(inputSize: number, hiddenSize: number, given: RNNOptions = {}) {
    const { nonlinearity = "tanh", ...options } = checkOptions("nn.RNN", given, {
      nonlinearity: true,
      numLayers: true,
      bias: true,
      batchFirst: true,
      dropout: true,
      bidirectional: true,
    });
    super(nonlinearity === "relu" ? "relu" : "tanh", inputSize, hiddenSize, options);
  }

  /**
   * The outputs of all steps, and the final state [layers · directions, batch, hidden]. The input is [steps, batch, input], or [steps, input]
   * without a batch. The initial state is 0 by default.
   */
  forward(x: Tensor, state?: Tensor, options: SequenceOptions = {}): [output: Tensor, state: Tensor] {
    checkOptions("nn.RNN.forward", options, sequenceOptionNames);
    const result = this.run(x, state && { state, cell: undefined }, options);
    return [result.output, result.state];
  }
}

/**
 * Long short-term memory. The parameters are named as in PyTorch: `weightIhL0` is `weight_ih_l0`, `weightIhL0Reverse` that of the second
 * direction.
 *
 * @example
 * ```ts
 * import { device, nn, randn } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.LSTM(4, 3, { numLayers: 2, batchFirst: true, bidirectional: true }).to(cpu);
 * const [output, [state, cell]] = layer.forward(randn([2, 10, 4]), undefined, { lengths: [10, 7] });
 * console.log(output.shape, state.shape, cell.shape); // → [ 2, 10, 6 ] [ 4, 2, 3 ] [ 4, 2, 3 ]
 * console.log(output.select(0, 1).narrow(0, 7, 3).abs().sum().item()); // → 0
 * cpu.close();
 * ```
 */
export class LSTM extends RecurrentLayer {
  constructor(inputSize: number, hiddenSize: number, options: RecurrentOptions = {}) {
    checkOptions("nn.LSTM", options, recurrentOptionNames);
    super("lstm", inputSize, hiddenSize, options);
  }

  /**
   * The outputs of all steps, and the final states and cells [layers · directions, batch, hidden]. The input is [steps, batch, input], or
   * [steps, input] without a batch. The initial states are 0 by default.
   */
  forward(
    x: Tensor,
    states?: readonly [state: Tensor, cell: Tensor],
    options: SequenceOptions = {},
  ): [output: Tensor, states: [state: Tensor, cell: Tensor]] {
    checkOptions("nn.LSTM.forward", options, sequenceOptionNames);
    const initial = states && { state: states[0], cell: states[1] };
    const { output, state, cell } = this.run(x, initial, options);
    return [output, [state, cell ?? state]];
  }
}

/**
 * Gated recurrent unit.
 *
 * @example
 * ```ts
 * import { device, nn, randn } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.GRU(4, 3).to(cpu);
 * const [output, state] = layer.forward(randn([10, 2, 4]));
 * console.log(output.select(0, 9).equal(state.select(0, 0))); // → true
 * console.log([...layer.namedParameters()].map(([name]) => name).join()); // → weightIhL0,weightHhL0,biasIhL0,biasHhL0
 * cpu.close();
 * ```
 */
export class GRU extends RecurrentLayer {
  constructor(inputSize: number, hiddenSize: number, options: RecurrentOptions = {}) {
    checkOptions("nn.GRU", options, recurrentOptionNames);
    super("gru", inputSize, hiddenSize, options);
  }

  /**
   * The outputs of all steps, and the final state [layers · directions, batch, hidden]. The input is [steps, batch, input], or [steps, input]
   * without a batch. The initial state is 0 by default.
   */
  forward(x: Tensor, state?: Tensor, options: SequenceOptions = {}): [output: Tensor, state: Tensor] {
    checkOptions("nn.GRU.forward", options, sequenceOptionNames);
    const result = this.run(x, state && { state, cell: undefined }, options);
    return [result.output, result.state];
  }
}
