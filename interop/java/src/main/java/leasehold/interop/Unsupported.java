package leasehold.interop;

/** This Redisson does not have what was asked for. */
final class Unsupported extends RuntimeException {
    private static final long serialVersionUID = 1;

    Unsupported(String what) {
        super(what);
    }
}
