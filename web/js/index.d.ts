/** Delta-rule sequence models in the browser. Everything runs in one Worker, on WebGPU or on the CPU. */

/** Where a model comes from: the address of its folder or of a `files.json` in it, or its files. */
export type Source =
  | string
  | URL
  | Iterable<File | { name: string; data: Blob | ArrayBuffer | ArrayBufferView }>
  | Map<string, Blob | ArrayBuffer | ArrayBufferView>
  | Record<string, Blob | ArrayBuffer | ArrayBufferView>;

/** `auto`: a real GPU if there is one, else the CPU. `gpu` takes a software adapter too. */
export type Device = "auto" | "gpu" | "cpu";

export interface Progress {
  stage: "downloading" | "reading" | "checking" | "uploading" | "compiling";
  /** Bytes. */
  done: number;
  /** Bytes. */
  total: number;
  /** Over the last three seconds; 0 when nothing comes from the network. */
  bytesPerSecond?: number;
}

export interface LoadOptions {
  onProgress?: (progress: Progress) => void;
  /** Default `auto`. */
  device?: Device;
  /** Most sessions alive at once, default 4. */
  sessions?: number;
  /** Keep downloaded files in the browser's storage, default true. */
  store?: boolean;
  signal?: AbortSignal;
}

export interface ModelInfo {
  modelType: string;
  parameters: number;
  weightBytes: number;
  layers: number;
  hidden: number;
  vocab: number;
  /** A session's memory, whatever its length. */
  stateBytes: number;
  /** What attention layers of a hybrid add for each token; 0 for all others. */
  cacheBytesPerToken: number;
  fingerprint: string;
  hasTokenizer: boolean;
  bos: number | null;
  eos: number[];
  engine: "gpu" | "cpu";
  /** Engine and device in words. */
  device: string;
  /** Why `auto` did not take a GPU. */
  note: string | null;
}

export interface GenerateOptions {
  /** 0 always takes the most likely token. Default 0.6. */
  temperature?: number;
  /** 0 keeps all. */
  topK?: number;
  /** Default 1. */
  topP?: number;
  /** Default 0.05. */
  minP?: number;
  repetitionPenalty?: number;
  /** The same seed draws the same tokens from the same logits, on every device. */
  seed?: number;
  /** Default 256. */
  maxTokens?: number;
  /** Texts that end the generation; they are not shown. */
  stop?: string | string[];
  /** Default true. */
  stopAtEndOfText?: boolean;
  /** Most steps a GPU submission: 16, or 8 where a program imitates the GPU. */
  stepsAhead?: number;
  /** Aborting ends the iteration with the signal's reason; the session's state is that of what was handed out. */
  signal?: AbortSignal;
}

export interface Piece {
  token: number;
  /** The text that this token completes; empty while a character or a possible stop text is incomplete. */
  text: string;
  /** ln of its probability under the model itself. */
  logprob: number;
}

export interface Batch {
  tokens: Uint32Array;
  texts: string[];
  logprobs: Float32Array;
}

export interface Prompt {
  /** With the token that begins a text, when it is the session's first. */
  tokens: Uint32Array;
  texts: string[];
}

export interface Finished {
  finish: "length" | "end of text" | "stop" | "cancelled";
  endToken: number | null;
  /** Text that no token completed. */
  tail: string;
  prompt?: Prompt;
}

/** Iterate it once. Leaving the loop early leaves the session after exactly the pieces it handed out. */
export interface Generation extends AsyncIterable<Piece> {
  batches(most?: number): AsyncIterableIterator<Batch>;
  stop(): void;
  readonly done: Promise<Finished>;
}

/** Heads that there are to see. */
export interface Grid {
  /** Layers that have a state. */
  layers: number;
  /** Most value heads of a layer. */
  heads: number;
  keyDim: number;
  valueDim: number;
}

export interface ViewOptions {
  session?: Session;
  /** Pixels of the canvas. */
  width: number;
  height: number;
  /** One head only: its layer, counting those that have a state, and its number. */
  layer?: number;
  head?: number;
  dark?: boolean;
  /** Contrast, default 1. */
  gain?: number;
  /** Pixels between heads, default 4. */
  gap?: number;
}

export interface View {
  /** Draws, and draws again as tokens arrive. */
  show(options: ViewOptions): Promise<void>;
  detach(): Promise<void>;
}

export type DeviceEvent = { type: "lost" } | { type: "recovered"; info: ModelInfo };

/** A text being read and written. Calls wait for each other; `fork()` makes an independent reader. */
export interface Session {
  readonly info: ModelInfo;
  readonly grid: Grid;
  feed(prompt: string | ArrayLike<number>): Promise<Prompt>;
  /** Feeds the prompt, if there is one, and goes on. */
  generate(prompt?: string | ArrayLike<number>, options?: GenerateOptions): Generation;
  /** Every token fed so far. */
  tokens(): Promise<Uint32Array>;
  /** Logits of the next token, `[vocab]`. */
  logits(): Promise<Float32Array>;
  /** Feeds tokens; −ln p of each. */
  score(tokens: ArrayLike<number>): Promise<Float32Array>;
  /** Feeds tokens; write strength β and decay of each, `[tokens, layers, heads, 2]` over the grid; NaN where a layer has fewer heads. */
  gates(tokens: ArrayLike<number>): Promise<Float32Array>;
  reset(): Promise<void>;
  fork(): Promise<Session>;
  /** The session as bytes that every engine of the same model loads, the native one too. */
  save(): Promise<Uint8Array>;
  /** Replaces this session by a saved one; returns its tokens. */
  restore(bytes: ArrayBuffer | Uint8Array | Blob): Promise<Uint32Array>;
  encode(text: string): Promise<Uint32Array>;
  decode(tokens: ArrayLike<number>): Promise<string>;
  /** The text that each token completes. */
  pieces(tokens: ArrayLike<number>): Promise<string[]>;
  /**
   * Shows the state on a canvas element, which belongs to the Worker from then on. `direct`: the GPU draws on the canvas
   * itself (else its pixels are copied there); default true on a real GPU.
   */
  view(canvas: HTMLCanvasElement, options?: { direct?: boolean }): Promise<View>;
  /** A lost device is opened again and the session goes on; this tells of it. Returns what ends the telling. */
  onDevice(listener: (event: DeviceEvent) => void): () => void;
  /** Frees the session, and the model with its last one. Returns the bytes of GPU memory still in use. */
  dispose(): Promise<number>;
}

export function load(source: Source, options?: LoadOptions): Promise<Session>;
/** Opens a device ahead of loading; returns it in words. */
export function open(device?: Device): Promise<string>;
/** Ends the Worker. */
export function shutdown(): void;

export interface Shape {
  batch?: number;
  tokens: number;
  heads?: number;
  valueHeads?: number;
  keyDim: number;
  valueDim: number;
}

/** Tensors are row-major. N is the number of sequences: `batch`, or the packed ones of `cuSeqlens`. */
export interface DeltaCall {
  shape: Shape;
  /** `[batch, tokens, heads, keyDim]` */
  q: Float32Array;
  /** `[batch, tokens, heads, keyDim]` */
  k: Float32Array;
  /** `[batch, tokens, valueHeads, valueDim]` */
  v: Float32Array;
  /** `[batch, tokens, valueHeads]` */
  beta?: Float32Array;
  /** Log decay, `[batch, tokens, valueHeads]` or `[batch, tokens, valueHeads, keyDim]` */
  g?: Float32Array;
  /** `[N, valueHeads, keyDim, valueDim]` */
  initialState?: Float32Array;
  precond?: { g: Float32Array; beta: Float32Array; logScale: Float32Array; initial?: Float32Array };
  /** `[N + 1]` offsets of packed sequences. */
  cuSeqlens?: Uint32Array;
  /** Default `keyDim ** -0.5`. */
  scale?: number;
  l2norm?: boolean;
  chunk?: 16 | 32 | 64;
  chunkStates?: boolean;
  device?: Device;
}

export interface DeltaResult {
  /** `[batch, tokens, valueHeads, valueDim]` */
  o: Float32Array;
  /** `[N, valueHeads, keyDim, valueDim]` */
  finalState: Float32Array;
  finalSums: Float32Array;
  chunkStates: Float32Array;
  chunk: number;
}

/** Tensors are row-major. Query head `h` reads key and value head `h / (heads / kvHeads)`. */
export interface AttentionCall {
  /** `kvHeads` defaults to `heads`. */
  shape: { batch?: number; tokens: number; heads?: number; kvHeads?: number; headDim: number };
  /** `[batch, tokens, heads, headDim]` */
  q: Float32Array;
  /** `[batch, tokens, kvHeads, headDim]` */
  k: Float32Array;
  /** `[batch, tokens, kvHeads, headDim]` */
  v: Float32Array;
  /** RMSNorm of each head of q and k, weights `[headDim]`; `eps` defaults to 1e-5. */
  qkNorm?: { q: Float32Array; k: Float32Array; eps?: number };
  /** `[N + 1]` offsets of packed sequences. */
  cuSeqlens?: Uint32Array;
  /** Default `headDim ** -0.5`. */
  scale?: number;
  /** Tokens that a query sees, itself included; all before it by default. */
  window?: number;
  /** Base of the rotary embedding, half-split form; none by default. */
  ropeTheta?: number;
  device?: Device;
}

export type Rule =
  | "linear_attention" | "scalar_decay" | "channel_decay" | "deltanet" | "gated_deltanet" | "kda" | "longhorn"
  | "preconditioned_deltanet" | "preconditioned_gated_deltanet" | "preconditioned_kda";

export const operators: {
  /** Token by token. */
  recurrent(rule: Rule, call: DeltaCall): Promise<DeltaResult>;
  /** Chunk by chunk: the same result, for long sequences. */
  chunk(rule: Rule, call: DeltaCall): Promise<DeltaResult>;
  /** Causal softmax attention, full or over a sliding window: `[batch, tokens, heads, headDim]`. */
  attention(call: AttentionCall): Promise<Float32Array>;
};

/** Models kept in the browser's storage. */
export const storage: {
  list(): Promise<{ key: string; url: string; used: number; bytes: number }[]>;
  remove(key?: string): Promise<void>;
};

export const debug: {
  /** Bytes in GPU buffers that are alive. */
  liveBytes(): Promise<number>;
  /** Bytes of the module's memory, which never shrinks. */
  moduleBytes(): Promise<number>;
  loseDevice(): Promise<void>;
};

/** Errors carry one of these in `code`. */
export type ErrorCode =
  | "io" | "format" | "config" | "tensor" | "argument" | "tokenizer" | "no-gpu" | "limit" | "out-of-memory"
  | "device-lost" | "gpu" | "session" | "unsupported" | "crashed";
