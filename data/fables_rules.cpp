// The rules and the words of the built-in language `fables`. data/README.md explains the notation.
#include "data/fables_grammar.h"

namespace ink {

const char* const kFablesRules = R"(
story: [open] [meet] [talk] [end]\n\n
open: [once] [girl=girls] the [shy] [beasts] [wanted] a [fine] [thing=things].
meet: 2 [girl] [ran] to the [grim] [place=places] and met [boy=boys] the [beasts].
    | One [wet] [dawn] [girl] met [boy=boys] the [beasts] [by] the [grim] [place=places].
talk: "[offer]
offer: 2 My [thing] for [two] [fresh] [foods]," [said] [boy] [softly].
     | [boy], I [need] a [thing]," [said] [girl] [softly].
end: 2 Now [girl] [sings] by the [place] with the [thing].
   | [boy] [sang], and [girl] took the [thing] to the [place].
need: need | want | love | seek | miss | crave | lost | hid | like
fresh: fresh | red | raw | ripe | sweet | sour | hot | cold | big | small | green | dry | round | good | old | new
     | soft | hard | salty | juicy | tasty
sings: sings | dances | naps | rests | plays | laughs | eats | dreams | hums | works | sits | jumps | hides | reads
     | sleeps | cooks

once: 3 Once | 2 Long ago | 2 One day | 2 Last year | In May | In June | At dawn | At noon
wanted: 4 wanted | needed | loved | lost | missed | sought | craved | saw | built | broke | hid | longed for
      | dreamed of | hoped for | wished for | asked for | prayed for | paid for
ran: ran | went | crept | hopped | walked | hurried | trotted | danced | skipped | marched | rushed | jumped
   | flew | limped | rode | swam | fled | drove | sailed | crawled
wet: wet | cold | warm | dark | bright | grey | still | misty | windy | foggy | hot | mild | dull | fine | blue
   | rainy | snowy | quiet | long | sad
dawn: dawn | day | night | noon | evening | morning
by: by | near | at | behind | under | beyond | beside | above | below | over | inside
said: 4 said | asked | cried | sighed | called | sang | begged | mumbled | laughed | growled | barked | yelled
    | roared | wept | hissed | howled
softly: softly | gently | kindly | loudly | proudly | quickly | warmly | shyly | boldly | at once | sadly | slowly
      | gladly | meekly | wildly | calmly
two: two | three | four | six | seven | nine | ten
sang: sang | danced | napped | rested | played | laughed | ate | dreamed | hummed | worked | sat | jumped | hid
    | read | slept | cooked

girls: Ada | Bela | Clara | Dora | Ella | Flora | Greta | Hilda | Ida | June | Kaya | Lena | Mila | Nora | Olga
     | Petra | Rosa | Sara | Tara | Ula | Vera | Wanda | Yara | Zelda
boys: Amos | Boris | Cyrus | Dino | Emil | Felix | Gus | Hugo | Igor | Jonah | Karl | Leo | Max | Ned | Otto
    | Paul | Remy | Sven | Theo | Ugo | Viktor | Wim | Yuri | Zeno
beasts: ant | ape | bat | bear | bee | boar | bug | calf | cat | colt | cow | crab | crow | deer | dog | dove | duck
      | eel | elk | fawn | finch | fly | fox | frog | gnat | goat | goose | gull | hare | hawk | hen | hog | jay
      | kid | lamb | lark | lion | lynx | mole | moth | mouse | mule | newt | otter | owl | ox | pig | pony | pup
      | rat | raven | seal | sheep | snail | stork | swan | toad | vole | wasp | wolf | worm | wren | yak
places: ash | barn | cave | dune | elm | ford | gate | hill | inn | jetty | kiln | lake | mill | nest | oak | pond | quay
      | road | shed | tree | vale | well | yard
grim: old | new | big | low | far | wet | dry | red | grey | green | white | black | wide | cold | lost | lone
    | dim | calm | mossy | windy | sunny | foggy | quiet | broken | misty | rocky | sandy | silent | snowy | stony
    | little | tall | high | deep | dark | hot | holy | empty | icy | ugly
shy: shy | sly | old | young | tiny | proud | poor | rich | kind | merry | lazy | brave | bold | wise | silly
   | clever | hungry | sleepy | lonely | grumpy | quick | gentle | noisy | jolly | fat | thin | neat | plump | mad
   | vain | rude | calm | dear | deaf | odd | able | idle | ugly
fine: red | blue | gold | silver | pink | tin | big | new | round | long | soft | warm | shiny | wooden
    | velvet | paper | plain | pretty | purple | green | glass | fine | fancy | brass | copper | bright | clean
    | white | brown | yellow | lucky | heavy | huge | cheap | dusty | jade | steel | thick
things: ball | cup | drum | fan | gem | hat | jar | kite | lamp | map | net | pipe | quilt | ring | sled | top | vase
      | whip | yoke
foods: figs | plums | nuts | eggs | peas | buns | dates | limes | tarts | rolls | cakes | grapes | melons | herbs
     | olives | yams | quinces | apples | beans | cherries | onions | roots | seeds | leeks
)";

}  // namespace ink
