/** Prints snowflakes of layout leaf: natsid number -- java Ids.java 3. */
class Ids {
    static final long NUMBER = Long.parseLong(System.getenv("NATSID_WORKER_NUMBER"));
    static final long EPOCH = 1288834974657L;
    static long last; // position: a millisecond, and 12 bits of sequence

    static synchronized long next() {
        last = Math.max(last + 1, System.currentTimeMillis() - EPOCH << 12);
        while (System.currentTimeMillis() - EPOCH < last >> 12) // the burst, or a clock that was set back
            Thread.onSpinWait();
        return last >> 12 << 22 | NUMBER << 12 | last & 4095;
    }

    public static void main(String[] args) {
        for (int n = Integer.parseInt(args[0]); n > 0; n--) System.out.println(next());
    }
}
