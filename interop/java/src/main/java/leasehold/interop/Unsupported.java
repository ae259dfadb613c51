package leasehold.interop;

/** This version of Redisson does not have the requested method. */
final class Unsupported extends RuntimeException {
    private static final long serialVersionUID = 1;

    Unsupported(String what) {
        super(what);
    }
}
