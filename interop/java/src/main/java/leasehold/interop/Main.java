package leasehold.interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Redisson, controlled by commands, one per line.
 *
 * <p>A line is {@code NUMBER CLIENT/THREAD VERB WORDS…}. CLIENT is the watchdog time of the client in milliseconds,
 * THREAD any name: each is a thread of its own, because to Redisson the thread is the owner. A thread executes
 * its commands in order. The reply is {@code = NUMBER ok|refused|unsupported|error TEXT}, as soon as it is known.
 *
 * <p>The program ends with its input, and with the verb {@code die}, without releasing any lock.
 */
public final class Main {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    private final Clients clients;
    private final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();

    private Main(Clients clients) {
        this.clients = clients;
    }

    public static void main(String[] arguments) throws IOException {
        var main = new Main(new Clients(Integer.parseInt(arguments[0]), Sentinels.after(arguments)));
        say("= 0 ok ready");
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            main.read(line);
        }
        Runtime.getRuntime().halt(0);
    }

    private void read(String line) {
        List<String> words = Arrays.asList(line.split(" "));
        String number = words.get(0);
        String thread = words.get(1);
        if (words.get(2).equals("die")) {
            Runtime.getRuntime().halt(137);
        }
        threads.computeIfAbsent(thread, Main::named).execute(() -> {
            String client = thread.substring(0, thread.indexOf('/'));
            say("= " + number + " " + answer(client, words.subList(2, words.size())));
        });
    }

    private static ExecutorService named(String name) {
        return Executors.newSingleThreadExecutor(work -> {
            var thread = new Thread(work, name);
            thread.setDaemon(true);
            return thread;
        });
    }

    private String answer(String client, List<String> words) {
        try {
            return "ok " + new Verbs(clients.of(Long.parseLong(client))).run(words);
        } catch (Exception | LinkageError failure) {
            return kind(failure) + " " + text(failure);
        }
    }

    /** The exception may be wrapped, by Redisson or by a loop. */
    private static String kind(Throwable thrown) {
        for (Throwable cause = thrown; cause != null; cause = cause.getCause()) {
            if (cause instanceof Unsupported) {
                return "unsupported";
            }
            // Not the owner, entered twice, or no such permit.
            if (cause instanceof IllegalMonitorStateException || cause instanceof IllegalArgumentException) {
                return "refused";
            }
        }
        return "error";
    }

    private static String text(Throwable thrown) {
        String cause = thrown.getCause() == null ? "" : ", caused by " + thrown.getCause();
        return (thrown + cause).replaceAll("\\s+", " ");
    }

    private static synchronized void say(String line) {
        OUT.println(line);
        OUT.flush();
    }
}
