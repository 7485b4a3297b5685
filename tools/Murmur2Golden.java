/* Makes tests/data/murmur2.tsv.gz: random keys with the hash that the Java client gives them.
 *
 *   java -cp '<broker jars>/*' tools/Murmur2Golden.java | gzip -9n > tests/data/murmur2.tsv.gz
 */

import java.util.HexFormat;
import java.util.Random;
import org.apache.kafka.common.utils.Utils;

public class Murmur2Golden {
    public static void main(String[] arguments) {
        Random random = new Random(20);
        StringBuilder lines = new StringBuilder();
        for (int i = 0; i < 12_000; i++) {
            byte[] key = new byte[i < 100 ? i : random.nextInt(24)];
            random.nextBytes(key);
            lines.append(HexFormat.of().formatHex(key)).append('\t').append(Utils.murmur2(key)).append('\n');
        }
        System.out.print(lines);
    }
}
