// Types of @riffle-dp/client. README.md says what a client promises, and what it cannot.

/** What this client agrees to, whatever a coordinator asks. A task that asks for more is declined, and nobody is told. */
export interface Policy {
  /** Largest ε₀ of a report, of several messages their sum: the promise that remains if all servers work together. Needed unless trusts has only modes in which sums are seen. */
  maxEps0?: number;
  /** Largest ε of everything that this client ever sends, at delta, if the servers do not all work together. */
  maxEpsilon: number;
  /** Largest ε of one task. Default: maxEpsilon / maxTasks. */
  maxTaskEpsilon?: number;
  /** δ of all tasks together. */
  delta: number;
  /** Number of tasks in which this client ever takes part. Default: 1. */
  maxTasks?: number;
  /** Largest sum of the ε₀ of all messages ever sent, a promise without any shuffler. Default: no limit. */
  maxLocalEpsilon?: number;
  /** Least number of reports among which this client's must be. */
  minReports: number;
  /** Number of other clients that are assumed to work with whoever reads the reports. Default: 0. */
  colluders?: number;
  /** Modes of trust that are allowed, such as "shuffle" or "vector-sum". Default: all. */
  trusts?: string[];
  /** Randomizers that are allowed. Default: all. */
  randomizers?: string[];
  /** Suite of the keys that reports are sealed to. Default: any. */
  suite?: "x25519" | "mlkem768x25519";
  /** Who may add the noise of a vector sum. Default: both. */
  noiseBy?: ("clients" | "aggregators")[];
  /** Decline vector sums whose reports carry no proof of their norm. */
  requireProofs?: boolean;
  /** Decline tasks whose messages carry no tokens of the registrar. */
  requireTokens?: boolean;
  /** Decline tasks whose messages carry no receipts. */
  requireReceipts?: boolean;
  /** Kinds of questions that are answered, such as "histogram"; ["nothing"]: none. Default: all. It says nothing about training. */
  measure?: string[];
  /**
   * Demand that the shuffler tells how many messages it has taken of this client, so that a ledger that was restored from a copy is
   * noticed. Default: true. The shuffler needs count-reports: true.
   */
  count?: boolean;
  /** Largest model that is downloaded, in bytes. Default: 64 MiB. */
  maxModelBytes?: number;
  /** Longest time until a round's deadline, in seconds. Default: a day. */
  maxRound?: number;
  /** Shortest time until a round's deadline, in seconds. Default: none. In short rounds a gradient may be late, and is reported as 0. */
  minRound?: number;
  /** Largest difference between clocks, in seconds. Default: 120. */
  skew?: number;
  /** Longest time that checking a task, and making all messages of a report, may take, in seconds. Default: 30. */
  maxWork?: number;
}

/** Public keys, "ed25519:…" as riffle keygen prints them. Get them from elsewhere than from these servers. */
export interface Keys {
  coordinator: string;
  /** The key of the shuffler's operator. */
  shuffler: string;
  /** With it no enrolment counts whose clients the registrar has not signed. */
  registrar?: string;
}

export interface Asked {
  /** The task's digest, in hex. */
  task: string;
  round: number;
  /** What the round publishes: for training the model's parameters. */
  theta: Float32Array;
  /** How many values the answer must have: theta's length, but in tasks that ask for more, such as a private evaluation. */
  dim: number;
}

/** Examples for tasks of a model that the page knows. The client's gradient is the mean of theirs. */
export interface Data {
  /** softmax: width · classes weights and classes intercepts. linear: width weights and an intercept. */
  model: "softmax" | "linear";
  /** Number of classes, of softmax. */
  classes?: number;
  /** Loss of linear: "logistic", "hinge", "absolute", "pinball:0.9". */
  loss?: string;
  /** λ of the term λ/2·‖theta‖², of linear. Default: 0. */
  ridge?: number;
  /** Number of features of an example. */
  width: number;
  /** The features, example after example. They are put to the task's scale by the page. */
  inputs: ArrayLike<number>;
  /** For each example its class, from 0, or its number. */
  targets: ArrayLike<number>;
}

export interface Options {
  /** https address, or several of coordinators on one store. */
  coordinator: string | string[];
  /** https address. */
  shuffler: string;
  /** https address; tokens are asked for there. */
  registrar?: string;
  /** https address of a relay: the shuffler does not see this client's address then. */
  relay?: string;
  /** https address of a CDN in front of the coordinator, asked first for tasks, announcements, models and lists of receipts; all are checked. */
  cache?: string;
  keys: Keys;
  policy: Policy;
  /**
   * The client's row, by column: it answers tasks that ask a question, such as a histogram. A column that is not there counts as the
   * question says, and nobody sees that it is not. Without a row questions are declined. One of row, data and gradient is required.
   */
  row?: Record<string, string | number | null>;
  /** Examples whose gradient is computed here. Tasks of another number of parameters, and those with a private evaluation, are declined. */
  data?: Data;
  /**
   * The client's gradient at theta, as long as the task's dimension. It is asked once in each round in which the client takes part. After
   * the time for an answer, or if it fails, the client reports a gradient of 0, so that nobody sees that it failed; an event says so.
   */
  gradient?: (asked: Asked) => ArrayLike<number> | PromiseLike<ArrayLike<number>>;
  /**
   * Default: the credential of the storage, which newCredential has made. A credential from elsewhere is taken once, as
   * {secret, new: true}, which says that it was never used: without its ledger nobody knows what it has spent.
   */
  credential?: string | {secret: string; new?: boolean};
  /** Name of the storage, one for each client of this origin. Default: "client". */
  storage?: string;
  /** Digests of the tasks to take part in, in hex: it ends with the last of them. Default: every task that the policy allows. */
  tasks?: string[];
  /** Seconds within which a report leaves at a time that is drawn. Default: a tenth of the time to the deadline, at most 60. Negative: at once. */
  spread?: number;
  /** Seconds for a gradient; reports leave after it. Default: a quarter of the time to the deadline, at most 120, or 10 for data and row. */
  answer?: number;
  /** Called with what happens. It is for this page: what it says must not leave the browser. */
  onEvent?: (event: Event) => void;
  /** Ends the client as stop() does. */
  signal?: AbortSignal;
}

/** Why a client does not take part. */
export type Reason = "signature" | "message" | "task" | "enrolment" | "key" | "mechanism" | "model" | "round" | "equivocate" | "clock"
  | "policy" | "budget" | "source" | "ledger" | "tokens" | "session";

/** Every event may be asked for its task, round and message; its type says which of them it has. */
export type Event = {task?: string; round?: number; message?: string} & (
  /** The client agreed to a task. */
  | {type: "agreed"; task: string}
  /** A round was announced and checked. Times are Unix milliseconds. */
  | {type: "round"; task: string; round: number; opens: number; deadline: number}
  /** The client declined a task (without a round) or a round. */
  | {type: "declined"; task?: string; round?: number; reason: Reason; message: string}
  /** The client's own coin, or the shuffler's draw, has left it out. */
  | {type: "passed" | "not-drawn"; task: string; round: number; message?: string}
  /** The gradient failed or came too late: the client reports one of 0. */
  | {type: "no-gradient"; task: string; round: number; message: string}
  /** The shuffler has the report. */
  | {type: "sent"; task?: string; round?: number}
  /** The report counts as spent and is not known to have arrived. */
  | {type: "lost"; task?: string; round?: number; message: string}
  /** What the client has spent so far, and may spend. "inf": there is no bound. */
  | {type: "spent"; epsilon: number | "inf"; delta: number; maxEpsilon: number; localEpsilon: number | "inf"; messages: number; tasks: number}
  /** A request failed and is repeated. */
  | {type: "retrying"; task?: string; round?: number; message: string}
  /** What is published of a round fits, or does not fit, what this client knows. */
  | {type: "compared" | "missing" | "half" | "unfit" | "untold"; task: string; round: number; message?: string}
  /** The task has ended. */
  | {type: "ended"; task: string});

export interface Participation {
  /** Fulfilled when the client has ended; rejected if it could not go on, for instance because the storage is full. */
  done: Promise<void>;
  /** Ends the client. A report that was charged and not sent is sent by the next join. */
  stop(): Promise<void>;
}

/** An Error of this package may have a reason: one of these, or a Reason. */
export type ErrorReason = Reason | "locked" | "no-client" | "no-ledger" | "client-exists";

/**
 * Makes a client that has never reported, and stores its secret together with its empty ledger. Returns its public line, which the
 * operator of the registrar or shuffler enrols. Rejects with reason "client-exists" if the storage has a client.
 */
export function newCredential(options?: {storage?: string}): Promise<string>;

/** The public line of the storage's client; null if there is none. */
export function publicLine(options?: {storage?: string}): Promise<string | null>;

/** Starts the client in a Worker, and is fulfilled when it runs. Only one tab at a time has a storage: else it rejects with reason "locked". */
export function join(options: Options): Promise<Participation>;
