/** recurrent: RNN, LSTM and GRU over whole sequences, and their cells. */

export type { RecurrentOptions, SequenceOptions } from "./base.js";
export { type CellOptions, GRUCell, LSTMCell, RNNCell, type RNNCellOptions } from "./cells.js";
export { GRU, LSTM, RNN, type RNNOptions } from "./layers.js";
