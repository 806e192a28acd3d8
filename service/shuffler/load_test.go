package shuffler

const loadChild = "RIFFLE_SHUFFLER_LOAD"

func loadMain() {}
